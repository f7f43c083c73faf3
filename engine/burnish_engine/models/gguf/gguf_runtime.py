"""Run GGUF files through llama.cpp, on the CPU.

Threads: a `GgufModel` belongs to one thread at a time (llama.cpp contexts are not locked); different models may be used
by different threads.
"""

from __future__ import annotations

import codecs
import ctypes
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.errors import BurnishError, SetupError, UsageError
from burnish_engine.hardware.host.cpu import usable_cores
from burnish_engine.models.generation.sampling import ReplyStream, Sampling, pick_token
from burnish_engine.models.gguf.gguf_library import check_magic, copied_text, last_warnings, library, take_warnings

_F32: Final = 0  # ggml_type, ggml.h


class GgufModel:
    """An open GGUF file.

    Args:
        path: file to open.
        context: number of tokens that fit at once; 0 is the context that the file was made for.
        threads: number of CPU threads; 0 is one per physical core this process may use.
        vocab_only: whether to load only metadata and tokenizer: cheap, works on files without tensors.
        exact: whether to keep keys and values in fp32 without flash attention, and check every tensor for invalid
            numbers. For comparing with a reference.
        overrides: string metadata that replaces the file's (used to try tokenizer settings).
        adapter: GGUF of a LoRA adapter that is added to the model; None: there is none.

    Raises:
        UsageError: There is no such file, or it is no GGUF.
        SetupError: llama.cpp cannot load it (damaged, truncated, unknown architecture).
    """

    def __init__(
        self,
        path: Path,
        *,
        context: int = 2048,
        threads: int = 0,
        vocab_only: bool = False,
        exact: bool = False,
        overrides: Mapping[str, str] | None = None,
        adapter: Path | None = None,
    ) -> None:
        check_magic(path)
        self.path = path
        self._lib = library()
        self._model: Any = None
        self._context: Any = None
        self._batch: Any = None
        self._cached: list[int] = []
        take_warnings()
        self._model = self._load(vocab_only, exact, overrides or {})
        self._vocab = self._lib.llama_model_get_vocab(self._model)
        self.vocab_size: int = self._lib.llama_vocab_n_tokens(self._vocab)
        self.context = 0
        if not vocab_only:
            self._open_context(context, threads, exact)
        if adapter is not None:
            self._add(adapter)

    def _load(self, vocab_only: bool, exact: bool, overrides: Mapping[str, str]) -> Any:
        params = self._lib.llama_model_default_params()
        params.n_gpu_layers = 0
        params.vocab_only = vocab_only
        params.check_tensors = exact
        if overrides:
            table = (self._lib.llama_model_kv_override * (len(overrides) + 1))()  # a zeroed entry ends the list
            for entry, (key, value) in zip(table, overrides.items(), strict=False):
                entry.tag = self._lib.LLAMA_KV_OVERRIDE_TYPE_STR
                entry.key = key.encode()
                entry.value.val_str = value.encode()
            params.kv_overrides = table
        model = self._lib.llama_model_load_from_file(str(self.path).encode("utf-8"), params)
        if not model:
            raise SetupError(
                f"llama.cpp cannot load {self.path}: {last_warnings()}.",
                "It may be damaged, cut off, for a newer version, or an adapter alone; make or download it again.",
            )
        return model

    def _open_context(self, context: int, threads: int, exact: bool) -> None:
        params = self._lib.llama_context_default_params()
        trained = self._lib.llama_model_n_ctx_train(self._model)
        self.context = min(context, trained) if context else trained
        params.n_ctx = self.context
        params.n_batch = params.n_ubatch = self._block = min(256, self.context)
        params.offload_kqv = params.op_offload = False
        params.no_perf = True
        params.n_threads = params.n_threads_batch = threads or usable_cores()
        if exact:
            params.type_k = params.type_v = _F32
            params.flash_attn_type = self._lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._context = self._lib.llama_init_from_model(self._model, params)
        if not self._context:
            reason = last_warnings()
            self.close()
            raise SetupError(
                f"llama.cpp cannot open {self.path} with a context of {self.context} tokens: {reason}.",
                "Try a smaller context.",
            )
        self._batch = self._lib.llama_batch_init(self._block, 0, 1)

    def _add(self, adapter: Path) -> None:
        """Add an adapter to the model; it is freed with it."""
        loaded = self._lib.llama_adapter_lora_init(self._model, str(adapter).encode("utf-8"))
        failed = True
        if loaded:
            adapters = (self._lib.llama_adapter_lora_p_ctypes * 1)(loaded)
            failed = self._lib.llama_set_adapters_lora(self._context, adapters, 1, (ctypes.c_float * 1)(1.0)) != 0
        if failed:
            reason = last_warnings()
            self.close()
            raise SetupError(
                f"llama.cpp cannot add the adapter {adapter} to {self.path}: {reason}.",
                "Use the adapter with the file it was made for.",
            )

    def close(self) -> None:
        """Free the model. Closing twice is fine; using it afterwards is not."""
        if self._batch is not None:
            self._lib.llama_batch_free(self._batch)
        if self._context:
            self._lib.llama_free(self._context)
        if self._model:
            self._lib.llama_model_free(self._model)
        self._model = self._context = self._batch = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_model", None) and not sys.is_finalizing():
            self.close()

    @functools.cached_property
    def metadata(self) -> dict[str, str]:
        """Scalar metadata by key, as text. Arrays are abbreviated by llama.cpp."""
        found: dict[str, str] = {}
        for index in range(self._lib.llama_model_meta_count(self._model)):
            key = copied_text(functools.partial(self._lib.llama_model_meta_key_by_index, self._model, index))
            found[key] = copied_text(functools.partial(self._lib.llama_model_meta_val_str_by_index, self._model, index))
        return found

    @property
    def architecture(self) -> str:
        """`general.architecture`."""
        return self.metadata.get("general.architecture", "")

    @property
    def chat_template(self) -> str:
        """The Jinja chat template, or an empty string."""
        return self.metadata.get("tokenizer.chat_template", "")

    @property
    def adds_bos(self) -> bool:
        """Whether programs put a BOS token before a text."""
        return bool(self._lib.llama_vocab_get_add_bos(self._vocab))

    @property
    def bos(self) -> int:
        """The BOS token, or -1."""
        return int(self._lib.llama_vocab_bos(self._vocab))

    @property
    def eos(self) -> int:
        """The EOS token, or -1."""
        return int(self._lib.llama_vocab_eos(self._vocab))

    def is_end(self, token: int) -> bool:
        """Return whether the token ends a generation."""
        return bool(self._lib.llama_vocab_is_eog(self._vocab, token))

    def end_tokens(self) -> list[int]:
        """Return every token that ends a generation."""
        return [token for token in range(self.vocab_size) if self.is_end(token)]

    def token_text(self, token: int) -> str:
        """Return a token as the vocabulary writes it, or an empty string for -1."""
        return self._lib.llama_vocab_get_text(self._vocab, token).decode("utf-8", "replace") if token >= 0 else ""

    def tokenize(self, text: str, *, special: bool = True, add_bos: bool = False) -> list[int]:
        """Return the token ids of a text.

        Args:
            text: text to tokenize.
            special: whether special tokens written out in the text become those tokens.
            add_bos: whether to put BOS first where the file says that programs do.
        """
        raw = text.encode("utf-8")
        room = len(raw) + 8
        tokens = (ctypes.c_int32 * room)()
        count = self._lib.llama_tokenize(self._vocab, raw, len(raw), tokens, room, add_bos, special)
        if count < 0:
            raise UsageError(f"llama.cpp cannot tokenize a text of {len(text)} characters.", "Shorten it.")
        return list(tokens[:count])

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token; none for control tokens."""
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            size = self._lib.llama_token_to_piece(self._vocab, token, buffer, room, 0, False)
            if size >= 0:
                return bytes(buffer.raw[:size])
            room = -size

    def logit_blocks(self, ids: Sequence[int]) -> Iterator[npt.NDArray[np.float32]]:
        """Yield the logits after every token, [at most 256, V] at a time, so that memory stays bounded.

        Raises:
            UsageError: The tokens do not fit the context.
        """
        self._forget(0)
        for start in range(0, self._fits(ids), self._block):
            yield self._decode(ids[start : start + self._block], every=True)

    def logits(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Return the logits after every token [T, V]; 4·T·V bytes."""
        return np.concatenate(list(self.logit_blocks(ids)))

    def generate(self, ids: Sequence[int], sampling: Sampling | None = None) -> ReplyStream:
        """Stream a reply to a prompt of token ids; ends at an end-of-generation token.

        The tokens that the context already holds from the last prompt and reply are reused, so a growing chat is only
        read where it is new.

        Raises:
            UsageError: The prompt is empty or does not fit the context.
        """
        if not ids:
            raise UsageError("The prompt is empty.", "Give at least one token.")
        self._fits(ids)
        chosen = sampling or Sampling()
        return ReplyStream(lambda stream: self._stream(stream, list(ids), chosen))

    def _stream(self, stream: ReplyStream, ids: list[int], sampling: Sampling) -> Iterator[str]:
        random = np.random.default_rng(sampling.seed)
        characters = codecs.getincrementaldecoder("utf-8")("replace")
        feed = ids[self._reuse(ids) :]
        for _ in range(min(sampling.max_tokens, self.context - len(ids) + 1)):
            for start in range(0, len(feed), self._block):
                logits = self._decode(feed[start : start + self._block], every=False)
            token = pick_token(logits[0], sampling, random)
            if self.is_end(token):
                stream.stopped = True
                break
            stream.tokens += 1
            if text := characters.decode(self.piece(token)):
                yield text
            feed = [token]
        if text := characters.decode(b"", final=True):
            yield text

    def _reuse(self, ids: list[int]) -> int:
        """Keep the longest common start of context and prompt (its last token must be read again); return its size."""
        common = 0
        for old, new in zip(self._cached, ids[:-1], strict=False):
            if old != new:
                break
            common += 1
        return self._forget(common)

    def _forget(self, keep: int) -> int:
        """Drop the context's tokens from `keep` on; return how many are left (recurrent layers can only drop all)."""
        memory = self._lib.llama_get_memory(self._context)
        if keep == 0 or not self._lib.llama_memory_seq_rm(memory, 0, keep, -1):
            self._lib.llama_memory_clear(memory, True)
            keep = 0
        del self._cached[keep:]
        return keep

    def _fits(self, ids: Sequence[int]) -> int:
        if len(ids) > self.context:
            raise UsageError(
                f"{len(ids)} tokens do not fit the context of {self.context} tokens {self.path.name} was opened with.",
                "Shorten the text or open the file with a longer context.",
            )
        return len(ids)

    def _decode(self, ids: Sequence[int], *, every: bool) -> npt.NDArray[np.float32]:
        """Read tokens at the end of the context; return logits [T or 1, V]."""
        batch, start = self._batch, len(self._cached)
        batch.n_tokens = len(ids)
        for place, token in enumerate(ids):
            if not 0 <= token < self.vocab_size:  # llama.cpp would only say "invalid token"
                raise UsageError(
                    f"Token {token} is not in a vocabulary of {self.vocab_size}.", "Use its own tokenizer."
                )
            batch.token[place] = token
            batch.pos[place] = start + place
            batch.n_seq_id[place] = 1
            batch.seq_id[place][0] = 0
            batch.logits[place] = every or place == len(ids) - 1
        status = self._lib.llama_decode(self._context, batch)
        if status != 0:
            self._forget(0)
            raise BurnishError(f"llama.cpp failed to compute {self.path.name} (status {status}): {last_warnings()}.")
        self._cached += ids
        rows = len(ids) if every else 1
        flat = self._lib.llama_get_logits(self._context)
        return np.ctypeslib.as_array(flat, shape=(rows * self.vocab_size,)).reshape(rows, self.vocab_size).copy()
