"""What tests of the engine share."""

import pytest


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """Folder of a tiny checkpoint by family; made once, and not to be changed."""
    from support import tiny_models

    folder = tmp_path_factory.mktemp("bases")
    made = {}

    def base(name):
        if name not in made:
            made[name] = tiny_models.make(name, folder / name)
        return made[name]

    return base
