"""Alibaba Cloud without SkyPilot: machines (ECS), network (VPC), prices, stock and quotas."""
