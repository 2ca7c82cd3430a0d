"""`python -m dse`: the same commands as the `dse` script."""

from dse.cli import main

if __name__ == "__main__":
    main()
