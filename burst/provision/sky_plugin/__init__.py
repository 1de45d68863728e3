"""What burst adds to SkyPilot 0.14.1, and replaces in it, per cloud. See docs/adr/0013.

`register.register()` does so in this process; SkyPilot's API server through `plugin.BurstPlugin`.
What a cloud does itself is elsewhere (burst.provision.alibaba, burst.provision.lambda_cloud); here
are only the shapes that SkyPilot wants.
"""
