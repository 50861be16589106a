"""Twenty seconds of the soak (tests/soak): every answer right, nothing left over. Its figures are for longer runs."""
import sys

import pytest

from lib import repo


@pytest.mark.more
def test_short_soak(tmp_path):
    sys.path.insert(0, str(repo.TOP / "tests/soak"))
    import soak

    lines, failures = soak.soak(tmp_path, seconds=20, clients=8)
    print(*lines, sep="\n")
    assert not failures, failures
