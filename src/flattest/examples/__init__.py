"""Files to try the commands on; `flattest example` writes them to a folder of one's own."""
