"""Replies in slots: those of the decoder step by step, whatever the slots, pages, company and order."""

import itertools
import json
import random
from contextlib import contextmanager

import pytest
import torch

from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.decoder.decoder_load import DecoderOptions, load_decoder
from burnish_engine.models.generation.decoder_generate import DecoderGenerator
from burnish_engine.models.generation.load_fast import load_for_generation
from burnish_engine.models.generation.paged import room, schedule
from burnish_engine.models.generation.paged import slots as slots_module
from burnish_engine.models.generation.paged.slots import ReplySlots
from burnish_engine.models.generation.sampling import Sampling
from burnish_engine.models.generation.text_generator import ReplyRequest

from support.models import tiny_models

pytestmark = pytest.mark.usefixtures("one_thread")
LENGTHS = (2, 30, 17, 30, 1, 70, 64, 63)


def source_of(folder):
    """A model source without a tokenizer."""
    config = json.loads((folder / "config.json").read_text())
    return ModelSource(folder, folder.name, config, decoder_spec(config))


def generators(folder, device="cpu", precision="fp32", *, keeps_slots=False, adapter=None):
    """A decoder that replies step by step, and in slots; both have the same weights."""
    made, reason = load_for_generation(source_of(folder), adapter, precision, torch.device(device))
    assert reason == ""
    return (DecoderGenerator(made.decoder, paged=paged, keeps_slots=keeps_slots) for paged in (False, True))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root, made = tmp_path_factory.mktemp("slots"), {}

    def folder(shape):
        if shape not in made:
            made[shape] = tiny_models.make(shape, root / shape)
        return made[shape]

    return folder


@pytest.fixture
def llama(folders):
    return generators(folders("llama"))


def prompts_of(lengths, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 384, (length,), generator=draw).tolist() for length in lengths]


def replies(generator, requests, stops=frozenset(), together=16):
    """Tokens of each reply and whether it stopped; every reply ends once, and nothing comes after its end."""
    made, ended = [[] for _ in requests], {}
    for piece in generator.replies(requests, stops, together):
        assert piece.request not in ended
        made[piece.request] += piece.tokens
        if piece.ended:
            ended[piece.request] = piece.stopped
    assert len(ended) == len(requests)
    return [(tokens, ended[number]) for number, tokens in enumerate(made)]


def greedy(prompts, tokens):
    return [ReplyRequest(prompt, Sampling(tokens)) for prompt in prompts]


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("shape", [*tiny_models.SHAPES, *tiny_models.MIXTURES])
def test_replies_are_those_made_step_by_step(folders, shape):
    stepwise, slots = generators(folders(shape))
    prompts = prompts_of(LENGTHS, seed=1)
    requests = greedy([*prompts, prompts[1], prompts[5]], 10)
    wanted = replies(stepwise, requests)
    assert replies(slots, requests) == wanted
    assert replies(slots, requests, together=3) == wanted


def test_replies_wait_for_pages_and_are_read_again(llama, monkeypatch):
    stepwise, slots = llama
    requests = greedy(prompts_of((60, 50, 3, 40), seed=2), 90)
    wanted = replies(stepwise, requests)
    sent_back = []
    kept = room.ReplySlots.end
    monkeypatch.setattr(room.ReplySlots, "end", lambda self, own: (sent_back.append(list(own)), kept(self, own))[1])
    monkeypatch.setattr(room, "_most_pages", lambda _decoder, _free: 5)  # all of them need nine
    assert replies(slots, requests) == wanted
    assert sum(len(own) == 1 for own in sent_back) >= 2


def test_all_begin_together_where_there_are_pages_for_all(llama, monkeypatch):
    _, slots = llama
    began = []
    kept = room.ReplySlots.begin
    monkeypatch.setattr(
        room.ReplySlots, "begin", lambda self, texts, *rest: (began.append(len(texts)), kept(self, texts, *rest))[1]
    )
    replies(slots, greedy(prompts_of((60, 50, 3, 40, 63), seed=2), 20))
    assert began == [5]


def test_little_memory_means_few_pages_and_short_readings(llama, monkeypatch):
    stepwise, slots = llama
    requests = greedy(prompts_of((200, 150, 90, 40), seed=8), 70)
    built = []
    kept = room.ReplySlots.begin
    monkeypatch.setattr(
        room.ReplySlots, "begin", lambda self, texts, *rest: (built.append(texts), kept(self, texts, *rest))[1]
    )
    monkeypatch.setattr(room, "_free_bytes", lambda _device: 9 * room.page_bytes(slots.decoder.spec, 4))
    assert replies(slots, requests) == replies(stepwise, requests)
    assert all(len(texts) == 1 or sum(map(len, texts.values())) <= 256 for texts in built)
    assert len(built) > 2


def test_pages_lie_in_memory_that_training_leaves_idle(folders, monkeypatch):
    """Where it holds more than the free memory; prompts are read in it too, and steps are not."""
    stepwise, plain = generators(folders("llama"))
    decoder = plain.decoder
    requests = greedy(prompts_of((60, 50, 3, 40), seed=2), 90)
    wanted, page = replies(stepwise, requests), room.page_bytes(decoder.spec, 4)
    inside, pages, steps = [False], [], []
    made, step = room.ReplySlots.__init__, ReplySlots.step

    @contextmanager
    def use():
        inside[0] = True
        yield
        inside[0] = False

    def makes(self, *arguments, **options):
        pages.append((arguments[2] - 1, inside[0]))
        made(self, *arguments, **options)

    def reads(*arguments):
        steps.append(inside[0])
        return read(*arguments)

    read = slots_module.read_prompts
    monkeypatch.setattr(room, "_BLOCK_STEP", 1)
    monkeypatch.setattr(room.ReplySlots, "__init__", makes)
    monkeypatch.setattr(slots_module, "read_prompts", reads)
    monkeypatch.setattr(
        ReplySlots, "step", lambda self, count: (steps.append(None if inside[0] else 0), step(self, count))[1]
    )
    for blocks, free, expected in (
        ([12 * page], 4 * page, (7, True)),  # 65 % of twelve
        ([12 * page], 40 * page, (11, False)),  # all are wanted, and free memory holds them
        ([20 * page], 40 * page, (11, True)),
        ([page // 2] * 24, 9 * page, (5, False)),  # no block holds the pages of more than a layer
        ([], 40 * page, (11, False)),
    ):
        monkeypatch.setattr(room, "_free_bytes", lambda _device, free=free, blocks=blocks: free + sum(blocks))
        idle = room.IdleMemory(lambda blocks=blocks: blocks, use)
        assert replies(DecoderGenerator(decoder, paged=True, idle=idle), requests) == wanted
        assert pages.pop() == expected
        assert {one for one in steps if isinstance(one, bool)} == {expected[1]}
        assert None not in steps
        steps.clear()


@pytest.fixture
def beside(monkeypatch):
    """Chunks of 40 tokens beside growing replies; lists tokens of readings, and 0 for each step."""
    monkeypatch.setattr(schedule, "BESIDE_TOKENS", 40)
    monkeypatch.setattr(room, "_prompt_tokens", lambda _decoder, _free: 100)
    done, begin, read_on, step = [], ReplySlots.begin, ReplySlots.read_on, ReplySlots.step

    def begins(self, texts, samplings, twins, bases, hidden):
        if hidden is None:
            done.append(sum(map(len, texts.values())))
        begin(self, texts, samplings, twins, bases, hidden)

    def reads_on(self, slot, text, first, end, *, base):
        done.append(end - first)
        return read_on(self, slot, text, first, end, base=base)

    monkeypatch.setattr(ReplySlots, "begin", begins)
    monkeypatch.setattr(ReplySlots, "read_on", reads_on)
    monkeypatch.setattr(ReplySlots, "step", lambda self, count: (done.append(0), step(self, count))[1])
    return done


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("shape", ["llama", "gemma3", "phi3", "gpt-oss", "qwen3"])
def test_long_prompts_are_read_in_chunks_beside_replies_that_grow(folders, shape, beside):
    stepwise, slots = generators(folders(shape))
    requests = greedy(prompts_of((9, 230, 90, 64, 130), seed=12), 20)
    requests += requests[4:]  # its pages are shared
    wanted = replies(stepwise, requests)
    assert replies(slots, requests) == wanted
    assert beside[0] == 9
    assert all(tokens <= 40 for tokens in beside[1:])
    assert sum(beside) == 9 + 230 + 90 + 64 + 130
    reads = [place for place, tokens in enumerate(beside) if tokens]
    assert all(0 in beside[before:after] for before, after in itertools.pairwise(reads))
    beside.clear()
    assert replies(slots, requests[1:2]) == wanted[1:2]
    assert [tokens for tokens in beside if tokens] == [100, 100, 30], "alone, as long as memory allows"


def test_a_prompt_that_is_being_read_gives_its_pages_to_replies_that_grow(llama, beside, monkeypatch):
    stepwise, slots = llama
    requests = greedy(prompts_of((60, 200), seed=13), 80)
    monkeypatch.setattr(room, "_most_pages", lambda _decoder, _free: 6)
    assert replies(slots, requests) == replies(stepwise, requests)
    assert sum(beside) > 260, "some of it was read twice"


def test_decoders_with_states_read_prompts_whole(folders, beside):
    stepwise, slots = generators(folders("qwen3-5"))
    requests = greedy(prompts_of((9, 230, 5), seed=12), 6)
    assert replies(slots, requests) == replies(stepwise, requests)
    assert 230 in beside


def test_no_more_slots_than_states_fit(folders, monkeypatch):
    stepwise, slots = generators(folders("qwen3-5"), keeps_slots=True)
    free = 5 * room.row_bytes(slots.decoder.spec, torch.float32)
    monkeypatch.setattr(room, "_free_bytes", lambda _device: free)
    requests = greedy(prompts_of((20, 9, 30, 40), seed=4), 6)
    assert replies(slots, requests) == replies(stepwise, requests)
    assert slots._room.slots.count == 2


def test_what_never_fits_is_told(llama, monkeypatch):
    _, slots = llama
    monkeypatch.setattr(room, "_most_pages", lambda _decoder, _free: 2)
    with pytest.raises(MemoryError, match="200 tokens needs 4 pages, 2 are free"):
        replies(slots, greedy(prompts_of((200,)), 5))
    with pytest.raises(MemoryError, match="no page to grow"):
        replies(slots, greedy(prompts_of((100,)), 60))
    assert len(replies(slots, greedy(prompts_of((20,)), 5))[0][0]) == 5


def test_tokens_that_end_a_reply_are_not_in_it(llama):
    stepwise, slots = llama
    prompts = prompts_of(LENGTHS, seed=3)
    whole = replies(stepwise, greedy(prompts, 12))
    stops = {whole[0][0][4], whole[5][0][0], whole[6][0][7]}
    wanted = replies(stepwise, greedy(prompts, 12), stops)
    assert {stopped for _, stopped in wanted} == {True, False}
    assert [] in [tokens for tokens, _ in wanted]
    assert replies(slots, greedy(prompts, 12), stops, together=3) == wanted


def test_draws_depend_on_their_seed_alone(llama):
    _, slots = llama
    prompts = prompts_of((9, 40, 9, 70), seed=4)
    kinds = [
        Sampling(14, 1.5, seed=7),
        Sampling(14),
        Sampling(9, 0.9, 0.8, seed=8, top_k=20),
        Sampling(3, 2.0, min_p=0.1),
    ]
    requests = [ReplyRequest(*pair) for pair in zip(prompts, kinds, strict=True)]
    wanted = replies(slots, requests)
    assert [replies(slots, [one])[0] for one in requests] == wanted
    assert replies(slots, requests[::-1], together=2)[::-1] == wanted
    other = replies(slots, [ReplyRequest(prompts[0], Sampling(14, 1.5, seed=9))])
    assert other != wanted[:1]
    assert replies(slots, [ReplyRequest(prompts[0], Sampling(14, 1.5, seed=9, top_k=1))]) == replies(
        slots, greedy(prompts[:1], 14)
    )


def test_equal_prompts_are_read_once(llama, monkeypatch):
    stepwise, slots = llama
    (prompt,) = prompts_of((100,))
    requests = greedy([prompt] * 5, 40)
    read = []
    from burnish_engine.models.generation.paged import slots as module

    original = module.read_prompts
    monkeypatch.setattr(
        module,
        "read_prompts",
        lambda view, caches, texts, rows: (read.extend(texts), original(view, caches, texts, rows))[1],
    )
    drawn = [ReplyRequest(prompt, Sampling(40, 1.0, seed=seed)) for seed in range(3)]
    assert replies(slots, requests) == replies(stepwise, requests)
    assert len(read) == 1
    assert len({tuple(tokens) for tokens, _ in replies(slots, drawn)}) == 3
    assert [replies(slots, [one])[0] for one in drawn] == replies(slots, drawn)


def test_slots_serve_again_after_a_reply_was_left_open(folders, monkeypatch):
    stepwise, slots = generators(folders("lfm2"), keeps_slots=True)
    built = []
    kept = room.SlotRoom.build
    monkeypatch.setattr(
        room.SlotRoom, "build", lambda size, *rest, **more: (built.append(size), kept(size, *rest, **more))[1]
    )
    requests = greedy(prompts_of((20, 70, 5), seed=5), 30)
    open_one = slots.replies(requests, set(), 16)
    next(open_one)
    open_one.close()
    assert replies(slots, requests) == replies(stepwise, requests)
    assert len(built) == 1
    assert replies(slots, greedy(prompts_of((200,)), 30)) == replies(stepwise, greedy(prompts_of((200,)), 30))
    assert len(built) == 2


def test_replies_that_are_open_at_once_do_not_meet(folders):
    stepwise, slots = generators(folders("llama"), keeps_slots=True)
    requests = greedy(prompts_of((20, 70), seed=7), 12)
    wanted = replies(stepwise, requests)
    replies(slots, requests)  # leaves slots behind
    first, second = (slots.replies(requests, set(), 16) for _ in range(2))
    made = {0: [[], []], 1: [[], []]}
    for pair in zip(first, second, strict=True):
        for which, piece in enumerate(pair):
            made[which][piece.request] += piece.tokens
    assert made[0] == made[1] == [tokens for tokens, _ in wanted]
    left = slots.replies(requests, set(), 16)
    next(left)
    going = slots.replies(requests, set(), 16)
    next(going)
    left.close()
    assert sum(len(piece.tokens) for piece in going) == 23


def test_layers_streamed_from_host_memory_reply_too(folders):
    source = source_of(folders("qwen3"))
    stepwise, _ = generators(folders("qwen3"))
    options = DecoderOptions(torch.float32, torch.device("cpu"), 64, layers_on_host=frozenset({0, 1}))
    streamed = load_decoder(source, options).decoder
    assert streamed.ring.layers
    requests = greedy(prompts_of((20, 70), seed=9), 12)
    assert replies(DecoderGenerator(streamed, paged=True), requests) == replies(stepwise, requests)


def test_steps_that_cannot_be_captured_are_made_all_the_same(llama, monkeypatch):
    """Captures are made only on a GPU, so here one is pretended, which always fails."""
    stepwise, slots = llama
    tried = []

    def fails(_self, count):
        tried.append(count)
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(ReplySlots, "_capture", fails)
    made = ReplySlots.__init__

    def pretends(self, *arguments, **options):
        made(self, *arguments, **options)
        self._captures = True

    monkeypatch.setattr(ReplySlots, "__init__", pretends)
    requests = greedy(prompts_of((20, 70), seed=10), 12)
    assert replies(slots, requests) == replies(stepwise, requests)
    assert tried == [2]


def test_seeds_may_be_large(llama):
    _, slots = llama
    request = ReplyRequest(prompts_of((5,))[0], Sampling(4, 1.0, seed=2**64 + 3))
    assert len(replies(slots, [request])[0][0]) == 4


@pytest.fixture
def chosen_bits(monkeypatch):
    """Bits of the logits that each token was chosen from, by seed of its reply and its place; they never change."""
    kept, found = ReplySlots._choose, {}

    def choose(self, logits, own):
        slots = range(len(logits)) if own is None else own.tolist()
        for row, slot in enumerate(slots):
            if self._rows.live[slot]:
                key = (int(self._choice.seed[slot]), int(self._rows.length[slot]))
                bits = logits[row].contiguous().view(torch.int32).cpu().numpy().tobytes()
                assert found.setdefault(key, bits) == bits
        kept(self, logits, own)

    monkeypatch.setattr(ReplySlots, "_choose", choose)
    return found


def exact_and_wanted(folder, device="cpu", precision="fp32"):
    """A decoder whose replies do not depend on others, requests, and their replies step by step."""
    stepwise, _ = generators(folder, device, precision)
    prompts = prompts_of([*LENGTHS[:5], *LENGTHS[6:]])
    requests = [ReplyRequest(prompt, Sampling(16, seed=seed)) for seed, prompt in enumerate(prompts)]
    return DecoderGenerator(stepwise.decoder, paged=True, exact=True), requests, replies(stepwise, requests)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("shape", ["llama", "phi3", "qwen3-5", "gemma3", "lfm2"])
def test_exact_replies_have_the_same_bits_at_any_batch_size(folders, shape, chosen_bits, monkeypatch):
    """Also where pages run out in the middle, so that replies begin again, and where keys are rotated otherwise."""
    monkeypatch.setattr(room, "EXACT_SLOTS", 8)
    exact, requests, wanted = exact_and_wanted(folders(shape))
    for together in (1, 3, 8):
        assert replies(exact, requests, together=together) == wanted
    count = len(chosen_bits)
    assert count == 16 * len(requests)
    monkeypatch.setattr(room, "_most_pages", lambda _decoder, _free: 6)
    assert replies(exact, requests[::-1], together=8) == wanted[::-1]
    assert len(chosen_bits) == count


def test_step_by_step_exact_replies_are_made_one_by_one(llama, monkeypatch):
    stepwise, _ = llama
    requests = greedy(prompts_of((9, 30, 5)), 6)
    wanted, starts = replies(stepwise, requests), []
    exact = DecoderGenerator(stepwise.decoder, paged=False, exact=True)
    kept = exact.start
    monkeypatch.setattr(
        exact, "start", lambda prompts, reserve: (starts.append(len(prompts)), kept(prompts, reserve))[1]
    )
    assert replies(exact, requests) == wanted
    assert starts == [1, 1, 1]


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [*tiny_models.SHAPES, *tiny_models.MIXTURES])
def test_captured_exact_replies_are_the_same_at_any_batch_size(folders, shape):
    """In bf16, where other bits soon choose other tokens."""
    exact, requests, _ = exact_and_wanted(folders(shape), "cuda", "bf16")
    wanted = replies(exact, requests, together=8)
    assert all(
        replies(exact, requests[::step], together=together) == wanted[::step] for step, together in ((1, 1), (2, 3))
    )


ADAPTERS = [("llama", {}), ("qwen3", {"dora": True}), ("qwen3-moe", {"experts": 4}), ("lfm2-bias", {"dora": True})]


def base_and_tuned(folder, adapter, device="cpu", *, precision="fp32"):
    """Requests of both kinds, and the replies of models that are asked one kind alone."""
    tuned, slots = generators(folder, device, precision, adapter=adapter)
    base, _ = generators(folder, device, precision)
    prompts = prompts_of((20, 70, 64, 3), seed=11)
    requests = [ReplyRequest(prompt, Sampling(16), base) for prompt in prompts for base in (True, False)]
    return slots, requests, [*zip(replies(base, greedy(prompts, 16)), replies(tuned, greedy(prompts, 16)), strict=True)]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("shape", "options"), ADAPTERS)
def test_base_and_tuned_replies_grow_together(folders, tmp_path, shape, options, monkeypatch):
    """Equal prompts of both share nothing, those of one kind do."""
    monkeypatch.setattr(room, "EXACT_SLOTS", 4)
    adapter = tiny_models.lora(folders(shape), tmp_path / "adapter", rank=8, **options)
    slots, requests, pairs = base_and_tuned(folders(shape), adapter)
    wanted = [reply for pair in pairs for reply in pair]
    assert all(base != tuned for base, tuned in pairs)
    assert replies(slots, requests) == wanted
    assert replies(slots, [*requests, *requests[:2]], together=5) == [*wanted, *wanted[:2]]
    slots.use_adapter(False)
    assert replies(slots, requests) == [base for base, _ in pairs for _ in range(2)]
    slots.use_adapter(True)
    stepwise = DecoderGenerator(slots.decoder, paged=False)
    assert replies(stepwise, requests, together=3) == wanted
    assert replies(DecoderGenerator(slots.decoder, paged=True, exact=True), requests) == wanted


@pytest.mark.gpu
@pytest.mark.parametrize(("shape", "options"), ADAPTERS)
def test_captured_replies_of_base_and_tuned_are_those_of_each(folders, tmp_path, shape, options):
    adapter = tiny_models.lora(folders(shape), tmp_path / "adapter", rank=8, **options)
    slots, requests, pairs = base_and_tuned(folders(shape), adapter, "cuda")
    assert replies(slots, requests) == [reply for pair in pairs for reply in pair]


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [*tiny_models.SHAPES, *tiny_models.MIXTURES])
def test_captured_replies_are_those_made_step_by_step(folders, shape):
    stepwise, slots = generators(folders(shape), "cuda")
    prompts = prompts_of(LENGTHS, seed=1)
    requests = greedy([*prompts, prompts[1], prompts[5]], 40)
    wanted = replies(stepwise, requests)
    assert replies(slots, requests) == wanted
    assert replies(slots, requests, together=3) == wanted


@pytest.mark.gpu
def test_a_thousand_replies_of_any_length_leave_nothing(folders, monkeypatch):
    _, slots = generators(folders("qwen3"), "cuda")
    monkeypatch.setattr(room, "_most_pages", lambda _decoder, _free: 60)  # too few for 64 long ones
    drawn = random.Random(0)
    requests = [
        ReplyRequest(prompt, Sampling(drawn.randint(1, 200), drawn.choice([0.0, 1.0]), seed=number))
        for number, prompt in enumerate(prompts_of([drawn.randint(1, 150) for _ in range(1000)], seed=6))
    ]
    replies(slots, requests[:50], {5, 9}, together=64)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    found = replies(slots, requests, {5, 9}, together=64)
    assert all(
        stopped or len(tokens) == one.sampling.max_tokens
        for (tokens, stopped), one in zip(found, requests, strict=True)
    )
    for number in range(0, 1000, 50):  # left in the middle
        going = slots.replies(requests[number : number + 50], {5, 9}, 64)
        for _ in range(number // 50):
            next(going, None)
        going.close()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before + 2**20
