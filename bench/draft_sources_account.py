"""How draft_sources.py counts: a row's accounts, its part, the layers of its draft, layer-rows, goals."""

import json
import tomllib

import sweep_configs


def config_of(options, method, settings):
    """The method's configuration as tables, with settings SECTION.KEY=VALUE."""
    config = tomllib.loads(sweep_configs.text_of(method, options.paceline))
    for setting in settings:
        (section, key), value = setting.split("=")[0].split("."), setting.split("=")[1]
        try:
            config.setdefault(section, {})[key] = json.loads(value)
        except json.JSONDecodeError:
            config.setdefault(section, {})[key] = value
    return config


def accounts_of(config):
    """[(account, settings)]"""
    if "self_draft" in config:
        return [("off", ["self_draft.auto_off=false"]), ("own", [])]
    fixed = config.get("schedule", {}).get("controller") == "off"
    if fixed or not ("draft" in config or "exit" in config):
        return [("off", [])]
    return [("off", ["schedule.controller=off"]), ("own", [])]


def part_of(config, there):
    """The name of the part that drafts; None without one."""
    draft, own, exits = config.get("draft", {}), config.get("self_draft", {}), config.get("exit", {})
    wanted = []
    if "trained" in draft.get("source", ""):
        wanted = [f"draft-{draft.get('size', 'small')}", "draft-small", "draft-deep"]
    elif "eagle" in draft.get("source", ""):
        wanted = ["eagle"]
    elif own.get("source") == "exit" and own.get("head") in ("trained", "adapter"):
        wanted = ["adapter"] if own["head"] == "adapter" else ["heads"]
    elif exits.get("ahead"):
        wanted = ["medusa"] if exits.get("ahead_block") == "residual" else ["heads"]
    elif exits.get("proposes"):
        wanted = ["adapter"] if exits.get("head") == "adapter" else ["heads"]
    return next((name for name in wanted if name in there), None)


def draft_layers(config, there, depth):
    """(layers of a pass of the draft, where this is from); None where the configuration does not tell."""
    draft = config.get("draft")
    if draft is None:
        return 0, "none"
    source, part = draft["source"], part_of(config, there)
    if part:
        layers = int(there[part][1].get("layers", 1))
        return layers, f"{layers} (part {part})"
    if "trained" in source or "eagle" in source or (source == "datastore" and "datastore" not in draft):
        source = draft.get("stand_in", "prompt-lookup")
    if "first-layers" in source:
        layers = draft.get("layers", 0.2)
        layers = layers if layers >= 1 else max(1, round(layers * depth))
        return layers, f"{layers:g} ([draft] layers)"
    return (None, "not known") if "skip-layers" in source or "model" in source else (0, "none (guesses)")


def layer_rows(figures, config, there, depth):
    own = figures.get("self_draft")
    if own:
        return own["layer_rows_per_token"]["all"], "its own account"
    layers, said = draft_layers(config, there, depth)
    if layers is None:
        return None, said
    rows = (figures["candidates"] + figures["batches"]) * depth + figures["draft_rows"] * layers
    return rows / figures["emitted_tokens"], said


def tokens_a_batch(prompts):
    """M: the prompt's batch and the token that it gives do not count."""
    batches = sum(row["batches"] - 1 for row in prompts)
    return sum(row["tokens"] - 1 for row in prompts) / batches if batches else None


def record_of(report, config, there, depth):
    """The figures of a report of `paceline check`, without times."""
    figures = report["figures"]
    own, rates = figures.get("self_draft"), figures["acceptance_rate_by_position"]
    rows, said = layer_rows(figures, config, there, depth)
    return {"M": tokens_a_batch(report["prompts"]),
            "alpha": own["acceptance_per_step"] if own
            else figures["accepted_tokens"] / figures["candidates"] if figures["candidates"] else None,
            "first_accepted": rates[0] if rates else 0.0,
            "forwards": figures["target_forwards"] / figures["emitted_tokens"], "layer_rows": rows, "draft_layers": said}


def goal_lines(goals, records):
    """(goal, set, least, value, reached or missed) of the goals whose rows were measured."""
    lines = []
    for goal, only, least, value in goals:
        for name in dict.fromkeys(r["set"] for r in records):
            rows = {r["row"]: r for r in records
                    if (r["set"], r["sampling"], r["account"]) == (name, "greedy", "off")}
            if only not in (None, name):
                continue
            try:
                found = value(rows)
            except (KeyError, TypeError, ZeroDivisionError):  # a row that was not measured
                lines.append([goal, name, f"{least:g}", "-", "not measured"])
                continue
            lines.append([goal, name, f"{least:g}", f"{found:.2f}", "reached" if found >= least and found > 0 else "missed"])
    return lines
