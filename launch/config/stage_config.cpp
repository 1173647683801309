#include "launch/config/stage_config.hpp"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <optional>

#include "ipc/base/limits.hpp"
#include "launch/config/field.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {
namespace {

/// Long enough for people, short enough for log prefixes and control messages.
constexpr std::size_t kNameBytesMax = 64;
constexpr double kStageLayersMax = 1'000'000;
constexpr double kCoreMax = 65535;
constexpr std::int32_t kRetainMbMax = 1'000'000;

bool is_auto(const TomlValue& value) {
    const auto* word = std::get_if<std::string>(&value);
    return word != nullptr && *word == "auto";
}

Status read_layers(const TomlTable& table, std::string_view key, LayerChoice& layers) {
    const TomlValue value = table.value(key);
    layers = AutoLayers{};
    if (is_auto(value)) return {};
    const auto* list = std::get_if<TomlNumbers>(&value);
    if (list == nullptr || list->size() != 2)
        return table.error(key, "must be [first, last] or \"auto\"");
    const auto [first, last] = std::pair{(*list)[0].value, (*list)[1].value};
    if ((*list)[0].whole && (*list)[1].whole) {
        if (first < 0 || last <= first || last > kStageLayersMax)
            return table.error(key, "must be [first, last] with 0 <= first < last <= 1000000");
        layers = LayerRange{static_cast<int>(first), static_cast<int>(last)};
        return {};
    }
    if (!(first >= 0.0 && first < last && last <= 1.0)) {
        return table.error(key,
                           "as fractions must be [first, last] with 0.0 <= first < last <= 1.0");
    }
    layers = LayerFractions{first, last};
    return {};
}

Status read_cores(const TomlTable& table, std::string_view key, std::vector<int>& cores) {
    const TomlValue value = table.value(key);
    if (is_auto(value)) return {};
    const auto* list = std::get_if<TomlNumbers>(&value);
    if (list == nullptr || list->empty())
        return table.error(key, "must be a list of core numbers such as [0, 1], or \"auto\"");
    for (const TomlNumber& core : *list) {
        if (!core.whole || core.value < 0 || core.value > kCoreMax)
            return table.error(key, "holds a number that is no core");
        cores.push_back(static_cast<int>(core.value));
    }
    std::sort(cores.begin(), cores.end());
    if (std::adjacent_find(cores.begin(), cores.end()) != cores.end())
        return table.error(key, "names a core twice");
    return {};
}

Status read_device(const TomlTable& table, std::string_view key, Device& device) {
    constexpr const char* kMust =
        "must be \"cpu\" or \"cuda:N\", or a list of GPUs such as [\"cuda:0\", \"cuda:1\"]";
    const TomlValue value = table.value(key);
    TomlTexts words;
    if (const auto* word = std::get_if<std::string>(&value)) words = {*word};
    if (const auto* list = std::get_if<TomlTexts>(&value)) words = *list;
    std::vector<int> gpus;
    for (const std::string& word : words) {
        const std::optional<Device> named = parse_device(word);
        if (!named || !named->others.empty()) return table.error(key, kMust);
        if (!named->gpu && words.size() > 1)
            return table.error(key, "has \"cpu\" in a list; a group is of GPUs alone");
        if (!named->gpu) {
            device = *named;
            return {};
        }
        gpus.push_back(*named->gpu);
    }
    if (gpus.empty()) return table.error(key, kMust);
    if (const auto problem = list_problem(gpus)) return table.error(key, *problem);
    device = Device{gpus.front()};
    device.others.assign(gpus.begin() + 1, gpus.end());
    return {};
}

/// A role, and what the word for it says besides.
struct Role {
    std::string_view word;
    StageRole role;
    bool exit;
    bool final;
};
constexpr std::array kRoles{Role{"segment", StageRole::Segment, false, false},
                            Role{"early-verify", StageRole::Segment, true, false},
                            Role{"final-verify", StageRole::Segment, false, true},
                            Role{"draft", StageRole::Draft, false, false},
                            Role{"correct", StageRole::Correct, false, false}};

constexpr const char* kRoleWords =
    "\"segment\", \"early-verify\", \"final-verify\", \"draft\", \"correct\"";

Status read_role(const TomlTable& table, std::string_view key, StageConfig& stage) {
    const TomlValue value = table.value(key);
    const auto* word = std::get_if<std::string>(&value);
    for (const Role& role : kRoles) {
        if (word == nullptr || *word != role.word) continue;
        stage.role = role.role;
        stage.exit = role.exit;
        stage.final = role.final;
        return {};
    }
    return table.error(key, "is not allowed (allowed: " + std::string{kRoleWords} + ")");
}

/// What a role needs, and which keys it does not have.
Status check_stage(const TomlTable& table, const StageConfig& stage) {
    if (stage.name.empty()) return table.error("name", "is missing or empty");
    if (!table.has("role"))
        return table.error("role", "is missing (allowed: " + std::string{kRoleWords} + ")");
    const std::string role = std::get<std::string>(table.value("role"));
    const bool segment = stage.role == StageRole::Segment;
    for (const char* key : {"layers", "segments", "exit", "retain_mb"}) {
        if (!segment && table.has(key))
            return table.error(key, "belongs to segments, this stage is a " + role);
    }
    if (role == "early-verify" && table.has("exit"))
        return table.error("exit", "goes without saying for role = \"early-verify\"");
    if (table.has("tensor") && table.has("device"))
        return table.error("tensor",
                           "is for a plan that chooses the GPUs (--gpus), device names them: one "
                           "of the two");
    if (table.has("process") && stage.process.empty())
        return table.error("process", "is empty; leave it out for a process of its own");
    if (segment && stage.on_death == OnDeath::RestartAlone) {
        return table.error("on_death",
                           "is for stages that hold nothing of the text; a segment holds its KV "
                           "cache (allowed: \"stop-run\", \"rebuild-chain\")");
    }
    if (!table.has("segments")) return {};
    if (!std::holds_alternative<AutoLayers>(stage.layers))
        return table.error("segments", "needs layers = \"auto\": an even share for each of them");
    if (stage.final) {
        return table.error("segments",
                           "is for role = \"segment\" or \"early-verify\"; there is "
                           "one \"final-verify\" only");
    }
    return {};
}

/// A notation of its own, which `read` puts into `at`.
template <class Read, class Value>
OwnField own(const char* type, const char* value, Read read, Value& at) {
    return {type, value, [read, &at](const TomlTable& table, std::string_view key) {
                return read(table, key, at);
            }};
}

}  // namespace

Field name_field(std::string_view key, std::string& name, std::string_view sentence) {
    return {key, TextField{&name, kNameBytesMax, true}, sentence};
}

std::vector<Field> fields_of(StageConfig& s) {
    return {
        {"name", TextField{&s.name, kNameBytesMax, true},
         "at most 64 bytes; no other stage has the same", "must be given"},
        {"role", own(kRoleWords, "must be given", read_role, s),
         "`segment`: layers of the target; `early-verify`: with an exit after them; "
         "`final-verify`: "
         "the last ones; `draft`; `correct` grows alternatives beside the draft"},
        {"layers", own("\"auto\" or [first, last]", "\"auto\"", read_layers, s.layers),
         "of a segment. `\"auto\"`: an even share, for all segments or none; [0, 15]: layers 0 to "
         "14; "
         "[0.0, 0.5]: half of the depth, whatever the model's"},
        {"segments", number(s.segments, 1, kSegmentsMax),
         "it stands for so many segments, name-1, name-2, ...; with `layers = \"auto\"`"},
        {"exit", &s.exit,
         "of a segment: `[exit]` stands after it; with `segments` after each but the last"},
        {"cores", own("\"auto\" or a list such as [0, 1]", "\"auto\"", read_cores, s.cores),
         "of its process; `\"auto\"`: cores are shared out among the processes"},
        {"threads", number(s.threads, 1, 1024), "of its process", "one per core"},
        {"device", own("\"cpu\", \"cuda:N\" or a list of GPUs", "\"cpu\"", read_device, s.device),
         "all segments are on CPUs or all on GPUs; stages on one GPU share a process. [\"cuda:0\", "
         "\"cuda:1\"]: each has a part of every matrix of the stage"},
        {"tensor", number(s.tensor, 1, kGroupGpusMax),
         "so many GPUs share the stage, where `--gpus` (`launch/paceline-launch`) chooses them"},
        name_field("process", s.process, "stages that name the same one share it; \"\": its own"),
        name_field("node", s.node,
                   "the machine that it runs on, by its name (`--meet`, `[[node]]`); \"\": chosen"),
        {"on_death", word(s.on_death, {"stop-run", "restart-alone", "rebuild-chain"}),
         "when its process dies the run ends (`stop-run`), it restarts beside the others (draft, "
         "correct), or it restarts and the committed tokens go through the layers again",
         "\"rebuild-chain\"; of draft and correct \"restart-alone\""},
        {"retain_mb", number(s.retain_mb, 0, kRetainMbMax),
         "of a segment, but the last one: it keeps so many MB of the hidden states that it has "
         "passed on. After the loss of the stage behind it, that one alone computes cached text "
         "again; without them all up to it do"},
    };
}

Result<std::vector<StageConfig>> expand_stage(const TomlTable& table, StageConfig stage) {
    // Drafts hold nothing that cannot be proposed again; a segment holds the KV cache.
    if (!table.has("on_death") && stage.role != StageRole::Segment)
        stage.on_death = OnDeath::RestartAlone;
    stage.device_given = table.has("device");
    if (Status s = check_stage(table, stage); !s.ok()) return s.error();
    if (!table.has("segments")) return std::vector{stage};
    std::vector<StageConfig> stages(static_cast<std::size_t>(stage.segments), stage);
    for (std::size_t i = 0; i < stages.size(); ++i) {
        stages[i].name = fmt::format("{}-{}", stage.name, i + 1);
        stages[i].one_of_many = true;
    }
    return stages;
}

}  // namespace paceline
