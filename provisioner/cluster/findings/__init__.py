"""What can be wrong with a service, one module per place where it shows.

Each looks at a snapshot and yields what it finds; none decides which finding
matters most or when it is final (see `provisioner.cluster.diagnosis`).
"""
