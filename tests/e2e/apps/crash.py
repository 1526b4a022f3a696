"""An application that fails before it starts a query."""

if __name__ == "__main__":
    message = "this application crashes at its start"
    raise RuntimeError(message)
