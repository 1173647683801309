#include "launch/config/stage_config.hpp"

#include <algorithm>
#include <optional>

#include "ipc/base/limits.hpp"

namespace paceline {

namespace {

/// Long enough for people, short enough for log prefixes and control messages.
constexpr std::size_t kNameBytesMax = 64;

Status read_layers(const TomlTable& table, LayerChoice& layers) {
    if (!table.has("layers")) return {};
    if (table.is_text("layers")) {
        std::string word;
        if (Status s = table.read_choice("layers", {"auto"}, word); !s.ok()) return s;
        layers = AutoLayers{};
        return {};
    }
    Result<NumberList> list = table.number_list("layers");
    if (!list) return list.error();
    const NumberList& bounds = list.value();
    if (bounds.values.size() != 2) {
        return table.error("layers", "has " + std::to_string(bounds.values.size()) +
                                         " numbers, expected [first, last] or \"auto\"");
    }
    const double first = bounds.values[0];
    const double last = bounds.values[1];
    if (bounds.all_whole) {
        if (first < 0 || last <= first || last > 1e6) {
            return table.error("layers", "must be [first, last] with 0 <= first < last");
        }
        layers = LayerRange{static_cast<int>(first), static_cast<int>(last)};
        return {};
    }
    if (!(first >= 0.0 && first < last && last <= 1.0)) {
        return table.error("layers",
                           "as fractions must be [first, last] with 0.0 <= first < last <= 1.0");
    }
    layers = LayerFractions{first, last};
    return {};
}

Status read_cores(const TomlTable& table, std::vector<int>& cores) {
    if (!table.has("cores")) return {};
    if (table.is_text("cores")) {
        std::string word;
        return table.read_choice("cores", {"auto"}, word);
    }
    Result<NumberList> list = table.number_list("cores");
    if (!list) return list.error();
    if (list.value().values.empty() || !list.value().all_whole) {
        return table.error("cores", "must be a list of core numbers such as [0, 1], or \"auto\"");
    }
    for (const double value : list.value().values) {
        if (value < 0 || value > 65535)
            return table.error("cores", "holds a number that is no core");
        cores.push_back(static_cast<int>(value));
    }
    std::sort(cores.begin(), cores.end());
    if (std::adjacent_find(cores.begin(), cores.end()) != cores.end()) {
        return table.error("cores", "names a core twice");
    }
    return {};
}

Status read_device(const TomlTable& table, Device& device) {
    std::string word = "cpu";
    if (Status s = table.read_text("device", word); !s.ok()) return s;
    const std::optional<Device> named = parse_device(word);
    if (!named) return table.error("device", "must be \"cpu\" or \"cuda:N\"");
    device = *named;
    return {};
}

Status read_on_death(const TomlTable& table, StageConfig& stage) {
    // Drafts hold nothing that cannot be proposed again; a segment holds the KV cache.
    const bool segment = stage.role == StageRole::Segment;
    stage.on_death = segment ? OnDeath::RebuildChain : OnDeath::RestartAlone;
    std::string word = name_of(stage.on_death);
    if (Status s =
            table.read_choice("on_death", {"stop-run", "restart-alone", "rebuild-chain"}, word);
        !s.ok())
        return s;
    const Result<OnDeath> policy = parse_on_death(word);
    if (!policy) return table.error("on_death", policy.error().what);
    stage.on_death = policy.value();
    if (segment && stage.on_death == OnDeath::RestartAlone) {
        return table.error("on_death",
                           "is for stages that hold nothing of the text; a segment holds its KV "
                           "cache (allowed: \"stop-run\", \"rebuild-chain\")");
    }
    return {};
}

/// The role, and what the words for it say besides.
Status read_role(const TomlTable& table, StageConfig& stage) {
    constexpr std::string_view kRoles =
        "\"segment\", \"early-verify\", \"final-verify\", \"draft\", \"correct\"";
    if (!table.has("role"))
        return table.error("role", "is missing (allowed: " + std::string{kRoles} + ")");
    std::string role;
    if (Status s = table.read_choice(
            "role", {"segment", "early-verify", "final-verify", "draft", "correct"}, role);
        !s.ok())
        return s;
    if (role == "draft") stage.role = StageRole::Draft;
    if (role == "correct") stage.role = StageRole::Correct;
    stage.exit = role == "early-verify";
    stage.final = role == "final-verify";
    for (const char* key : {"layers", "segments", "exit"}) {
        if (stage.role != StageRole::Segment && table.has(key)) {
            return table.error(key, "belongs to segments, this stage is a " + role);
        }
    }
    if (stage.exit && table.has("exit")) {
        return table.error("exit", "goes without saying for role = \"early-verify\"");
    }
    return table.read_bool("exit", stage.exit);
}

/// `stage` as many times as `segments` says.
Result<std::vector<StageConfig>> expand(const TomlTable& table, const StageConfig& stage) {
    if (!table.has("segments")) return std::vector{stage};
    int count = 1;
    if (Status s = table.read_int("segments", 1, static_cast<int>(kSegmentsMax), count); !s.ok())
        return s.error();
    if (!std::holds_alternative<AutoLayers>(stage.layers)) {
        return table.error("segments", "needs layers = \"auto\": an even share for each of them");
    }
    if (stage.final) {
        return table.error("segments",
                           "is for role = \"segment\" or \"early-verify\"; there is "
                           "one \"final-verify\" only");
    }
    std::vector<StageConfig> stages(static_cast<std::size_t>(count), stage);
    for (int i = 0; i < count; ++i) {
        StageConfig& one = stages[static_cast<std::size_t>(i)];
        one.name = stage.name + "-" + std::to_string(i + 1);
        one.one_of_many = true;
    }
    return stages;
}

}  // namespace

Status read_name(const TomlTable& table, std::string_view key, std::string& name) {
    if (Status s = table.read_text(key, name); !s.ok()) return s;
    if (name.size() > kNameBytesMax) {
        return table.error(key, "has more than " + std::to_string(kNameBytesMax) + " bytes");
    }
    const auto is_control = [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; };
    if (std::any_of(name.begin(), name.end(), is_control))
        return table.error(key, "holds a control character");
    return {};
}

Result<std::vector<StageConfig>> read_stages(const TomlTable& table) {
    if (Status s = table.allow_only({"name", "role", "layers", "segments", "exit", "cores",
                                     "threads", "device", "process", "on_death"});
        !s.ok())
        return s.error();
    StageConfig stage;
    if (Status s = read_name(table, "name", stage.name); !s.ok()) return s.error();
    if (stage.name.empty()) return table.error("name", "is missing or empty");
    if (Status s = read_role(table, stage); !s.ok()) return s.error();
    if (Status s = read_layers(table, stage.layers); !s.ok()) return s.error();
    if (Status s = read_cores(table, stage.cores); !s.ok()) return s.error();
    if (Status s = table.read_int("threads", 1, 1024, stage.threads); !s.ok()) return s.error();
    if (Status s = read_device(table, stage.device); !s.ok()) return s.error();
    if (Status s = read_name(table, "process", stage.process); !s.ok()) return s.error();
    if (table.has("process") && stage.process.empty())
        return table.error("process", "is empty; leave it out for a process of its own");
    if (Status s = read_on_death(table, stage); !s.ok()) return s.error();
    return expand(table, stage);
}

}  // namespace paceline
