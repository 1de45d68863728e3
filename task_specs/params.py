"""`burst.params` (or a top-level `train:` block): hyper-parameters, read before a machine is paid.

Names that trainers share have a type, at any depth and in lists too. Every other value follows one
rule: unquoted decimal numbers (`2e-5` and `1e9` included) are numbers, unquoted true and false are
booleans, null is None, and all else is text as typed (`no`, `0755`, `1:30`, `0x10`). The word
`auto` is always kept: DeepSpeed fills it in.
"""

from __future__ import annotations

from typing import Any

from burst.task_specs import units
from burst.task_specs.fields import as_boolean
from burst.task_specs.nodes import ListNode, MapNode, Node, Scalar, as_typed, is_null
from burst.task_specs.problems import Report
from burst.task_specs.variables import looks_secret

_WORD = (
    "save_strategy eval_strategy evaluation_strategy logging_strategy hub_strategy downcast_bf16 "
    "lr_scheduler lr_scheduler_type optim optimizer mixed_precision finetuning_type report_to "
    "run_name output_dir model_name_or_path base_model dataset dataset_name template dtype "
    "torch_dtype attn_implementation padding_side truncation_side ddp_backend adapter fsdp"
)
_BOOL = (
    "bf16 fp16 tf32 packing sample_packing eval_sample_packing neat_packing "
    "gradient_checkpointing do_train do_eval do_predict overwrite_output_dir load_in_4bit "
    "load_in_8bit group_by_length push_to_hub remove_unused_columns dataloader_pin_memory "
    "dataloader_drop_last dataloader_persistent_workers load_best_model_at_end greater_is_better "
    "trust_remote_code torch_compile ddp_find_unused_parameters train_on_inputs flash_attention "
    "xformers_attention bf16_full_eval fp16_full_eval logging_first_step auto_find_batch_size "
    "pad_to_sequence_len use_cache plot_loss shuffle full_determinism save_only_model"
)
_COUNT = (  # whole, at least 1
    "per_device_train_batch_size per_device_eval_batch_size per_device_batch micro_batch_size "
    "eval_batch_size batch_size train_batch_size train_micro_batch_size_per_gpu "
    "gradient_accumulation_steps grad_accum cutoff cutoff_len max_seq_length max_seq_len "
    "sequence_len block_size lora_r lora_rank save_total_limit num_beams"
)
_WHOLE = (  # whole, at least 0
    "seed data_seed lora_alpha dataloader_num_workers preprocessing_num_workers num_workers "
    "num_layers num_heads hidden_size max_samples num_cycles save_safetensors_shards"
)
_ANY_WHOLE = "max_steps local_rank"  # -1 means none
_CADENCE = "save_steps eval_steps logging_steps"  # whole steps, or a share of the run below 1
_NOT_NEGATIVE = (
    "min_lr weight_decay warmup_ratio warmup_steps adam_beta1 adam_beta2 adam_epsilon "
    "max_grad_norm clip_norm label_smoothing label_smoothing_factor lora_dropout dropout "
    "attention_dropout neftune_noise_alpha kl_coef beta val_set_size num_train_epochs num_epochs "
    "epochs gradient_clipping sub_group_size"
)
_POSITIVE = "learning_rate lr max_lr peak_lr base_lr embedding_lr temperature"

_KINDS = {
    name: kind
    for kind, names in {
        "word": _WORD, "boolean": _BOOL, "count": _COUNT, "whole": _WHOLE,
        "any whole": _ANY_WHOLE, "cadence": _CADENCE, "not negative": _NOT_NEGATIVE,
        "positive": _POSITIVE,
    }.items()
    for name in names.split()
}  # fmt: skip
_LEAST = {"count": 1, "whole": 0, "any whole": -(10**30)}


def read_params(node: MapNode, path: str, report: Report) -> dict[str, Any]:
    """Return the parameters as the training function gets them."""
    for name, entry in node.entries.items():
        if looks_secret(name) and not is_null(entry.value):
            report.warn(
                f"parameter {name} is written to the run URI; a credential goes in `secrets`"
            )
    return {
        name: _read(name, entry.value, f"{path}.{name}", report)
        for name, entry in node.entries.items()
    }


def _read(name: str, node: Node, path: str, report: Report) -> Any:  # noqa: ANN401 - YAML
    match node:
        case MapNode():
            return read_params(node, path, report)
        case ListNode():
            return [
                _read(name, item, f"{path}[{index}]", report)
                for index, item in enumerate(node.items)
            ]
        case Scalar():
            try:
                return _value(_KINDS.get(name, ""), node)
            except ValueError as error:
                written = None if looks_secret(name) else as_typed(node)
                report.problem(path, str(error), line=node.line, written=written)
                return None


def _value(kind: str, node: Scalar) -> object:
    if is_null(node):
        return None
    if kind == "word" or node.text == "auto":
        return node.text
    if kind == "boolean":
        return as_boolean(node)
    if kind == "":
        return _untyped(node)
    return _number(kind, node.text)


def _untyped(node: Scalar) -> object:
    if node.quoted:
        return node.text
    if node.text in {"true", "True", "TRUE"}:
        return True
    if node.text in {"false", "False", "FALSE"}:
        return False
    if units.is_number(node.text):
        return units.number(node.text)
    if node.text.lower().lstrip("+-") in {".inf", ".nan"}:
        raise ValueError("needs a finite number; text goes in quotes")
    return node.text


def _number(kind: str, text: str) -> int | float:
    if kind in _LEAST:
        value = units.whole(text)
        if value < _LEAST[kind]:
            raise ValueError(f"needs at least {_LEAST[kind]}")
        return value
    number = units.number(text)
    if kind == "positive" and number <= 0:
        raise ValueError("needs to be more than 0")
    if number < 0:
        raise ValueError("cannot be negative")
    if kind == "cadence" and number >= 1:
        return units.whole(text)
    return number
