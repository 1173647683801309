#include "launch/tools/simulate_settings.hpp"

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

Status set_exit_layer(PipelineConfig& config, const std::string& value, int layers) {
    const std::optional<int> layer = number_in<int>(value);
    const int segments = config.segments();
    if (segments < 2) return Error{Errc::BadArgument, "exit-layer: there is only one segment"};
    if (!layer || *layer < 1 || *layer > layers - segments + 1) {
        return Error{Errc::BadArgument,
                     fmt::format("exit-layer = '{}', must be a number from 1 to {}", value,
                                 layers - segments + 1)};
    }
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

Result<Setting> parse_setting(const std::string& word) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == word.size()) {
        return Error{Errc::BadArgument,
                     "'" + word + "' is no setting; it must be KEY=VALUE, e.g. draft.gamma=8"};
    }
    return Setting{trimmed(word.substr(0, equals)), trimmed(word.substr(equals + 1))};
}

Result<std::vector<Setting>> parse_sweep(const std::string& word) {
    const Result<Setting> whole = parse_setting(word);
    if (!whole) return whole.error();
    std::vector<Setting> values;
    int depth = 0;
    std::string value;
    const auto close = [&] { values.push_back({whole.value().key, trimmed(value)}); };
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
            return Error{Errc::BadArgument, "'" + word + "': a value is empty"};
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

Result<Variant> apply_settings(const std::string& toml,
                               const std::string& file,
                               const std::vector<Setting>& settings,
                               const StageTimingOptions& timing,
                               int layers) {
    std::string text = toml;
    StageTimingOptions changed = timing;
    std::optional<std::string> exit_layer;
    for (const Setting& setting : settings) {
        if (setting.key == "exit-layer") {
            exit_layer = setting.value;
            continue;
        }
        if (setting.key == "draft-cost") {
            changed.draft_cost = number_in<double>(setting.value);
            if (changed.draft_cost && *changed.draft_cost >= 0 && *changed.draft_cost <= 1000)
                continue;
            return Error{Errc::BadArgument,
                         "draft-cost = '" + setting.value + "', must be a number from 0 to 1000"};
        }
        const std::size_t dot = setting.key.find('.');
        if (dot == std::string::npos || dot == 0 || dot + 1 == setting.key.size()) {
            return Error{Errc::BadArgument,
                         "'" + setting.key +
                             "' is no setting; there are SECTION.KEY, exit-layer "
                             "and draft-cost"};
        }
        text =
            with_key(text, setting.key.substr(0, dot), setting.key.substr(dot + 1), setting.value);
    }
    Result<PipelineConfig> config = parse_pipeline_config(text, file);
    if (!config) return config.error();
    if (exit_layer) {
        if (Status s = set_exit_layer(config.value(), *exit_layer, layers); !s) return s.error();
    }
    return Variant{std::move(config).value(), changed};
}

}  // namespace paceline
