"""A command as a user gives it, run in this process."""

import pytest

from dse.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `dse` with these arguments."""
    with pytest.raises(SystemExit) as stopped:
        main([str(each) for each in arguments])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err
