#include "launch/simulate/settings.hpp"

#include <charconv>
#include <fmt/core.h>

namespace paceline {
namespace {

template <class Number>
std::optional<Number> number_in(const std::string& text) {
    Number value{};
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc{} || end != text.data() + text.size()) return {};
    return value;
}

/// As TOML wants it: numbers, truth values, lists and quoted texts as they are, words in quotes.
std::string toml_value(const std::string& value) {
    const bool as_it_is = value == "true" || value == "false" || number_in<double>(value) ||
                          (!value.empty() && (value.front() == '[' || value.front() == '"'));
    return as_it_is ? value : "\"" + value + "\"";
}

std::string trimmed(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return {};
    return std::string{text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1)};
}

/// The name before '=' of a line "name = value"; empty for any other line.
std::string key_of(const std::string& line) {
    const std::size_t equals = line.find('=');
    return equals == std::string::npos ? std::string{} : trimmed(line.substr(0, equals));
}

Error wrong(const Setting& setting, const std::string& what) {
    return Error{Errc::BadArgument,
                 setting.option + " " + setting.key + "=" + setting.value + ": " + what};
}

/// SECTION.KEY
Status check_key(const Setting& setting) {
    const std::size_t dot = setting.key.find('.');
    if (dot != std::string::npos && dot > 0 && dot + 1 < setting.key.size()) return {};
    return wrong(setting, "'" + setting.key +
                              "' is no key; there are SECTION.KEY (paceline run --list-settings), "
                              "exit-layer and draft-cost");
}

Status set_exit_layer(PipelineConfig& config, const Setting& setting, int layers) {
    const std::optional<int> layer = number_in<int>(setting.value);
    const int segments = config.segments();
    if (segments < 2)
        return wrong(setting, config.file + " has only one segment, there is no exit before it");
    if (!layer || *layer < 1 || *layer > layers - segments + 1)
        return wrong(setting, fmt::format("must be a layer from 1 to {}", layers - segments + 1));
    int index = 0;
    for (StageConfig& stage : config.stages) {
        if (stage.role != StageRole::Segment) continue;
        const auto bound = [&](int i) {
            return i == 0 ? 0 : *layer + (layers - *layer) * (i - 1) / (segments - 1);
        };
        stage.layers = LayerRange{bound(index), bound(index + 1)};
        ++index;
    }
    return {};
}

}  // namespace

Result<Setting> parse_setting(const std::string& word, const std::string& option) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == word.size()) {
        return Error{
            Errc::BadArgument,
            option + ": '" + word + "' is no setting; it must be KEY=VALUE, such as draft.gamma=8"};
    }
    Setting setting{trimmed(word.substr(0, equals)), trimmed(word.substr(equals + 1)), option};
    if (setting.key == kExitLayer || setting.key == kDraftCost) return setting;
    if (Status s = check_key(setting); !s) return s.error();
    return setting;
}

Result<std::vector<Setting>> parse_sweep(const std::string& word) {
    const Result<Setting> whole = parse_setting(word, "--sweep");
    if (!whole) return whole.error();
    std::vector<Setting> values;
    int depth = 0;
    std::string value;
    const auto close = [&] { values.push_back({whole.value().key, trimmed(value), "--sweep"}); };
    for (const char c : whole.value().value) {
        if (c == '[') ++depth;
        if (c == ']') --depth;
        if (c == ',' && depth == 0) {
            close();
            value.clear();
        } else {
            value += c;
        }
    }
    close();
    for (const Setting& setting : values) {
        if (setting.value.empty())
            return Error{Errc::BadArgument, "--sweep " + word + ": a value is empty"};
    }
    return values;
}

std::vector<std::vector<Setting>> combinations(const std::vector<std::vector<Setting>>& sweeps) {
    std::vector<std::vector<Setting>> all{{}};
    for (const std::vector<Setting>& values : sweeps) {
        std::vector<std::vector<Setting>> longer;
        for (const std::vector<Setting>& begun : all) {
            for (const Setting& value : values) {
                longer.push_back(begun);
                longer.back().push_back(value);
            }
        }
        all = std::move(longer);
    }
    return all;
}

std::string with_key(const std::string& toml,
                     const std::string& section,
                     const std::string& key,
                     const std::string& value) {
    const std::string header = "[" + section + "]";
    const std::string line = key + " = " + toml_value(value) + "\n";
    std::string text;
    bool within = false;
    bool done = false;
    for (std::size_t begin = 0; begin < toml.size();) {
        const std::size_t end = std::min(toml.find('\n', begin), toml.size());
        const std::string old = toml.substr(begin, end - begin);
        begin = end + 1;
        const std::string bare = trimmed(old.substr(0, old.find('#')));
        if (!bare.empty() && bare.front() == '[' && bare.back() == ']' &&
            bare.find('=') == std::string::npos) {
            within = bare == header;
            text += old + "\n";
            // In front of the table's other keys: a key of a subtable must not swallow it.
            if (within && !done) {
                text += line;
                done = true;
            }
            continue;
        }
        if (within && key_of(bare) == key) continue;
        text += old + "\n";
    }
    if (!done) text += "\n" + header + "\n" + line;
    return text;
}

Result<Variant> apply_settings(const ConfigSource& source,
                               const std::vector<Setting>& settings,
                               const StageTimingOptions& timing,
                               std::optional<int> layers) {
    ConfigSource with_settings = source;
    std::string changes;
    StageTimingOptions changed = timing;
    const Setting* exit_layer = nullptr;
    for (const Setting& setting : settings) {
        if (setting.key == kExitLayer) {
            exit_layer = &setting;
            continue;
        }
        if (setting.key == kDraftCost) {
            changed.draft_cost = number_in<double>(setting.value);
            if (changed.draft_cost && *changed.draft_cost >= 0 && *changed.draft_cost <= 1000)
                continue;
            return wrong(setting, "must be a number from 0 to 1000");
        }
        if (Status s = check_key(setting); !s) return s.error();
        const std::size_t dot = setting.key.find('.');
        with_settings.toml = with_key(with_settings.toml, setting.key.substr(0, dot),
                                      setting.key.substr(dot + 1), setting.value);
        changes +=
            (changes.empty() ? "" : " ") + setting.option + " " + setting.key + "=" + setting.value;
    }
    // Errors name the settings: the lines that they count are not those of the file.
    if (!changes.empty()) with_settings.file += " (" + changes + ")";
    Result<PipelineConfig> config = parse_pipeline_config(with_settings);
    if (!config) return config.error();
    config.value().file = source.file;
    if (exit_layer != nullptr && layers) {
        if (Status s = set_exit_layer(config.value(), *exit_layer, *layers); !s) return s.error();
    }
    return Variant{std::move(config).value(), changed};
}

}  // namespace paceline
