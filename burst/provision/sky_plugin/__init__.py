"""What burst adds to SkyPilot 0.14.1: clouds that it does not have. See docs/adr/0013.

`register.register()` adds them to this process; SkyPilot's API server does so through
`plugin.BurstPlugin`. What a cloud does itself is elsewhere (burst.provision.alibaba); here are
only the shapes that SkyPilot wants.
"""
