"""One test for each place at which SkyPilot is changed, so that an upgrade says which it broke."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ecs_scene import KEY, T4, Scene

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
Ask = Callable[[str], str]
HOOKS = "from burst.provision.sky_plugin import alibaba_hooks as hooks\n"
REGISTERED = "from burst.provision.sky_plugin.register import register\nregister(); register()\n"
REFRESHED = (
    REGISTERED
    + """
from burst.clock import SystemClock
from burst.provision import skypilot
from burst.provision.alibaba.settings import Settings
skypilot.refresh_alibaba(Settings(regions=("ap-southeast-1",)), SystemClock())
"""
)


def test_hook_name_schemas_read_the_names_of_clouds_when_they_are_made(ask: Ask) -> None:
    said = ask(
        HOOKS
        + """
from sky.utils import schemas
before = str(schemas.get_resources_schema())
hooks.name(); hooks.name()
print('alibaba' in before, 'alibaba' in str(schemas.get_resources_schema()))
from sky.skylet import constants
print(type(constants.ALL_CLOUDS).__name__, constants.ALL_CLOUDS.count('alibaba'))
"""
    )
    assert said.splitlines() == ["False True", "tuple 1"]


def test_hook_cloud_the_registry_takes_another_one(ask: Ask) -> None:
    said = ask(
        HOOKS
        + """
hooks.cloud(); hooks.cloud()
from sky.utils import registry
one = registry.CLOUD_REGISTRY.from_str('aliyun')
print(repr(one), one.canonical_name(), type(one)._check_compute_credentials())
"""
    )
    assert said.strip() == "Alibaba alibaba (True, None)"


def test_hook_catalog_is_imported_by_name_and_read_again_when_its_file_changed(ask: Ask) -> None:
    said = ask(
        REFRESHED
        + f"""
from sky import catalog
from sky.utils import annotations
from burst.provision.sky_plugin import alibaba_catalog
def cost():
    annotations.clear_request_level_cache()
    return catalog.get_hourly_cost('{T4}', True, 'ap-southeast-1', 'ap-southeast-1a', 'alibaba')
before = cost()
path = alibaba_catalog.path()
path.write_text(path.read_text().replace(',0.17,', ',0.09,'))
print(before, cost())
print(sorted(catalog.list_accelerators(clouds='alibaba')))
"""
    )
    assert said.splitlines() == ["0.17 0.09", "['A10', 'A100-80GB', 'H20', 'T4']"]


def test_a_catalog_that_was_never_written_is_empty_and_breaks_nothing(ask: Ask) -> None:
    said = ask(
        REGISTERED
        + """
from sky import catalog
print(catalog.list_accelerators(clouds='alibaba'), catalog.instance_type_exists('x', 'alibaba'))
print(catalog.get_instance_type_for_accelerator('T4', 1, clouds='alibaba'))
print(catalog.get_default_instance_type(clouds='alibaba'))
"""
    )
    assert said.splitlines() == ["{} False", "(None, [])", "None"]


def test_hook_provisioner_calls_come_to_us(ask: Ask) -> None:
    said = ask(
        HOOKS
        + """
hooks.provisioner(); hooks.provisioner()
from sky import provision
from burst.provision.sky_plugin import alibaba_provision as ours
known = provision.get_registered_provisioner('alibaba')
spec = known.template_override(None, None, _extra_launch_context={},
                               _is_launched_by_jobs_controller=False)
import os
print(known.module is ours, os.path.isfile(spec.template_path))
print(provision.query_instances('Alibaba', 'c', 'c-on-cloud', {'region': 'ap-southeast-1'}))
"""
    )
    assert said.splitlines() == ["True True", "{}"]


def test_hook_keys_ours_are_filled_in_and_other_clouds_are_left_alone(ask: Ask) -> None:
    said = ask(
        HOOKS
        + """
import inspect, sky
from sky.backends import backend_utils
theirs = backend_utils._add_auth_to_cluster_config
print(list(inspect.signature(theirs).parameters))
hooks.cloud(); hooks.keys(); hooks.keys()
print(backend_utils._add_auth_to_cluster_config.__wrapped__ is theirs)
from sky.utils import registry, yaml_utils
config = {'auth': {'ssh_user': 'ubuntu'}, 'key': 'skypilot:ssh_public_key_content'}
for cloud in ('alibaba', 'aws'):
    yaml_utils.dump_yaml('/dev/shm/burst-keys.yaml', config)
    one = registry.CLOUD_REGISTRY.from_str(cloud)
    backend_utils._add_auth_to_cluster_config(one, '/dev/shm/burst-keys.yaml')
    print(yaml_utils.read_yaml('/dev/shm/burst-keys.yaml')['key'].split()[0])
import os
os.unlink('/dev/shm/burst-keys.yaml')
"""
    )
    assert said.splitlines()[:2] == ["['cloud', 'tmp_yaml_path']", "True"]
    assert said.splitlines()[2] == said.splitlines()[3] != "skypilot:ssh_public_key_content"


def test_hook_failures_a_quota_is_one_of_the_region_and_rights_are_of_the_cloud(ask: Ask) -> None:
    said = ask(
        REFRESHED
        + f"""
import sky
from sky import clouds
from sky.backends.cloud_vm_ray_backend import FailoverCloudErrorHandlerV2 as handler
from sky.provision import common
wanted = sky.Resources(infra='alibaba/ap-southeast-1', instance_type='{T4}')
zones = [clouds.Zone('ap-southeast-1a')]
for code in ('OperationDenied.NoStock', 'QuotaExceed.ElasticQuota', 'Forbidden.RAM'):
    error, blocked = common.ProvisionerError('no'), set()
    error.errors = [dict(code=code, message='no')]
    handler.update_blocklist_on_error(
        blocked, wanted, clouds.Region('ap-southeast-1'), zones, error)
    (one,) = blocked
    print(one.region, one.zone, one.instance_type)
"""
    )
    assert said.splitlines() == [
        f"ap-southeast-1 ap-southeast-1a {T4}",
        f"ap-southeast-1 None {T4}",
        "None None None",
    ]


def test_a_task_file_may_name_it_and_the_cheapest_zone_wins(ask: Ask, scene: Scene) -> None:
    scene.cloud.spot_prices["ap-southeast-1b", T4] = [(scene.cloud.clock(), 0.11)]
    said = ask(
        REFRESHED
        + """
import sky, pickle
from sky import check, optimizer
from sky.clouds import CloudCapability
check.check_capability(CloudCapability.COMPUTE, clouds=['alibaba'], quiet=True)
task = sky.Task.from_yaml_str('''
resources: {infra: alibaba, accelerators: "T4:1", use_spot: true}
run: nvidia-smi
''')
with sky.Dag() as dag:
    dag.add(task)
optimizer.Optimizer.optimize(dag, quiet=True)
best = pickle.loads(pickle.dumps(task.best_resources))
print('BEST', best.cloud, best.instance_type, best.zone, best.get_cost(3600))
"""
    )
    (best,) = [line for line in said.splitlines() if line.startswith("BEST")]
    assert best == f"BEST Alibaba {T4} ap-southeast-1b 0.11"


LIMIT = f"""
import sky
from pathlib import Path
from sky import clouds
from sky.backends import backend_utils
from sky.utils import yaml_utils
from burst.provision.sky_plugin import alibaba_hooks
region, zone = clouds.Region('ap-southeast-1'), clouds.Zone('ap-southeast-1a')
region.set_zones([zone])
def node(**more):
    wanted = sky.Resources(infra='alibaba/ap-southeast-1/ap-southeast-1a', instance_type='{T4}',
                           **more)
    made = backend_utils.write_cluster_config(
        wanted, 1, str(alibaba_hooks.TEMPLATE), 'toy', Path('/dev/null'), 'hash', region, [zone],
        dryrun=True)
    config = yaml_utils.read_yaml(made['ray'])
    return config['available_node_types']['ray_head_default']['node_config']
for more in (dict(use_spot=True, max_hourly_cost=0.5), dict(use_spot=True),
             dict(use_spot=False, max_hourly_cost=0.5)):
    print(repr(node(**more)['SpotPriceLimit']))
"""


def test_what_a_node_may_cost_is_the_limit_of_a_spot_machine(ask: Ask) -> None:
    assert ask(REFRESHED + LIMIT).split()[-3:] == ["'0.5'", "None", "None"]


def test_the_limit_is_in_the_currency_that_the_account_is_billed_in(ask: Ask, scene: Scene) -> None:
    scene.cloud.currency = "CNY"
    yuan = """
from datetime import date
from decimal import Decimal
from burst.clock import SystemClock
from burst.cost.quotes import Rate
from burst.provision import skypilot
from burst.provision.alibaba.settings import Settings
rate = Rate('CNY', Decimal('0.125'), date(2026, 1, 1), 'test')
skypilot.refresh_alibaba(Settings(regions=('ap-southeast-1',), rates=(rate,)), SystemClock())
"""
    assert ask(REGISTERED + yuan + LIMIT).split()[-3:] == ["'4'", "None", "None"]


def test_an_older_table_of_prices_without_a_rate_is_asked_for_anew(ask: Ask, scene: Scene) -> None:
    ask(REFRESHED)
    said = ask(
        REGISTERED
        + """
from burst.provision.sky_plugin import alibaba_catalog
path = alibaba_catalog.path()
path.write_text(path.read_text().replace('UsdRate', 'Other'))
try:
    alibaba_catalog.as_billed(0.5, 'ap-southeast-1')
except Exception as error:
    print(error)
"""
        + REFRESHED.removeprefix(REGISTERED)
        + "print(alibaba_catalog.as_billed(0.5, 'ap-southeast-1'))"
    )
    assert said.splitlines() == [
        "no rate is known for prices of Alibaba Cloud in ap-southeast-1", "0.5",
    ]  # fmt: skip


LIFE = f"""
import sky
from sky import provision
from sky.provision import common
from sky.utils import status_lib
node = dict(InstanceType='{T4}', Zone='ap-southeast-1a', UseSpot=True, ImageId='', ImageFamily='f',
            DiskSize=50, Labels={{'burst-run': 'toy-abc123', 'burst-node': 'n001'}},
            SpotPriceLimit=None, PublicKey='{KEY}', UserData='#cloud-config')
config = common.ProvisionConfig(
    provider_config=dict(region='ap-southeast-1'), authentication_config={{}}, docker_config={{}},
    node_config=node, count=2, tags={{}}, resume_stopped_nodes=True, ports_to_open_on_launch=None)
where = ('Alibaba', 'ap-southeast-1')
def launch():
    made = provision.bootstrap_instances(*where, 'toy-on-cloud', config)
    return provision.run_instances(*where, 'toy', 'toy-on-cloud', config=made)
"""


def test_the_life_of_a_cluster(ask: Ask, scene: Scene) -> None:
    said = ask(
        REGISTERED
        + LIFE
        + """
first, again = launch(), launch()
print(len(first.created_instance_ids), again.created_instance_ids, first.zone)
provision.wait_instances(*where, 'toy-on-cloud', state=status_lib.ClusterStatus.UP)
info = provision.get_cluster_info(*where, 'toy-on-cloud', {'region': where[1]})
print(info.num_instances, info.head_instance_id == first.head_instance_id)
print(all(ip.startswith('10.') and other for ip, other in info.ip_tuples()))
states = provision.query_instances('Alibaba', 'toy', 'toy-on-cloud', {'region': where[1]})
print({state.value for state, _ in states.values()})
provision.terminate_instances('Alibaba', 'toy-on-cloud', {'region': where[1]})
provision.terminate_instances('Alibaba', 'toy-on-cloud', {'region': where[1]})
print(provision.query_instances('Alibaba', 'toy', 'toy-on-cloud', {'region': where[1]}))
"""
    )
    assert said.splitlines() == ["2 [] ap-southeast-1a", "2 True", "True", "{'UP'}", "{}"]
    assert len(scene.cloud.gone) == 2
    assert all(machine.release_at for machine, _ in scene.cloud.gone.values())


def test_a_machine_that_is_not_a_run_s_has_no_term(ask: Ask, scene: Scene) -> None:
    ask(REGISTERED + LIFE + "\nnode['Labels'] = {}\nlaunch()\n")
    assert [machine.release_at for machine in scene.cloud.machines.values()] == [None, None]


@pytest.mark.parametrize(
    ("set_up", "words"),
    [
        ({"stock": {("ap-southeast-1a", T4): 1}}, "OperationDenied.NoStock"),
        ({"spot_quota": 6}, "0 of 6 spot vCPUs are in use in ap-southeast-1"),
    ],
)
def test_a_refusal_comes_out_with_the_cloud_s_code(
    ask: Ask, scene: Scene, set_up: dict[str, object], words: str
) -> None:
    for name, value in set_up.items():
        setattr(scene.cloud, name, value)
    said = ask(
        REGISTERED
        + LIFE
        + """
import logging
from burst.provision import refusals
show = logging.Handler()
show.emit = lambda record: print('LOGGED', record.getMessage())
logging.getLogger('sky.provision.alibaba').addHandler(show)
try:
    launch()
except common.ProvisionerError as error:
    print(error)
    print(error.errors[0]['code'], refusals.reason_of(str(error)))
"""
    )
    told, logged = said.splitlines()[-2], [x for x in said.splitlines() if x[:7] == "LOGGED "]
    assert words in told
    assert logged == [f"LOGGED {told}"]  # a launch's log is all that comes through SkyPilot
    assert said.split()[-1] in {"capacity", "quota"}
    assert scene.cloud.machines == {}


@pytest.mark.parametrize(
    ("limit", "strategy"), [("'0.2'", "SpotWithPriceLimit"), (None, "SpotAsPriceGo")]
)
def test_a_limit_of_the_price_reaches_ecs(
    ask: Ask, scene: Scene, limit: str | None, strategy: str
) -> None:
    ask(REGISTERED + LIFE + f"node['SpotPriceLimit'] = {limit}\nlaunch()\n")
    (given,) = [given for action, given in scene.cloud.calls if action == "RunInstances"]
    assert given["SpotStrategy"] == strategy
    assert given.get("SpotPriceLimit") == (limit and limit.strip("'"))


def test_a_market_above_the_limit_refuses_for_its_price(ask: Ask, scene: Scene) -> None:
    said = ask(
        REGISTERED
        + LIFE
        + """
from burst.provision import refusals
node['SpotPriceLimit'] = '0.16'
try:
    launch()
except common.ProvisionerError as error:
    print(error.errors[0]['code'], refusals.reason_of(str(error)))
"""
    )
    assert said.split()[-2:] == ["InvalidSpotPriceLimit.LowerThanPublicPrice", "price"]
    assert scene.cloud.machines == {}


def test_taken_while_it_starts(ask: Ask, scene: Scene) -> None:
    said = ask(
        REGISTERED
        + LIFE
        + """
launch()
provision.terminate_instances('Alibaba', 'toy-on-cloud', {'region': where[1]})
try:
    provision.wait_instances(*where, 'toy-on-cloud', state=status_lib.ClusterStatus.UP)
except RuntimeError as error:
    print(error)
"""
    )
    assert said.strip() == "the machines of toy-on-cloud do not run: none is there"


def test_the_server_s_plugin_is_named_beside_a_person_s_own(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / ".sky").mkdir(exist_ok=True)
    (tmp_path / ".sky/plugins.yaml").write_text("plugins: [{class: logging.NullHandler}]\n")
    said = ask(
        """
import os
from pathlib import Path
from burst.provision.sky_plugin.register import PLUGIN, PLUGINS_FILE, tell_server
home = Path(os.environ['BURST_HOME'])
tell_server(home); tell_server(home)
import yaml
config = yaml.safe_load(Path(os.environ[PLUGINS_FILE]).read_text())
print([one['class'] for one in config['plugins']] == ['logging.NullHandler', PLUGIN])
config['plugins'] = config['plugins'][1:]
Path(os.environ[PLUGINS_FILE]).write_text(yaml.safe_dump(config))
from sky.server import plugins
plugins.load_plugins(plugins.ExtensionContext(context=plugins.PluginContext.EXECUTOR))
from sky.utils import registry
print(registry.CLOUD_REGISTRY.from_str('alibaba'))
"""
    )
    assert said.splitlines() == ["True", "Alibaba"]


def test_without_credentials_nothing_is_added(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALIBABA_CLOUD_ACCESS_KEY_ID")
    assert ask(REGISTERED + "print(register())").strip() == "()"
