"""Reading `fleet.toml`, table by table, with every fault named; and writing a first one."""
