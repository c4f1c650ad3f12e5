"""`pulumi preview|up|destroy --stack NAME` of one data service, its specification in the stack's configuration.

The same component as under the connector; `provisioner.resources` has it.
"""

from provisioner.stack_config import program_from_config

program_from_config()
