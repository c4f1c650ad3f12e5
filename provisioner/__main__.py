"""Run the command line as `python -m provisioner`."""

from provisioner.cli.main import run

if __name__ == "__main__":
    run()
