"""`python -m rmqstore`: the command line."""

from rmqstore.cli.main import main

if __name__ == "__main__":
    main()
