"""The command `calving`, as a module that the nursery can run."""

from calving.cli.main import main

if __name__ == "__main__":
    main()
