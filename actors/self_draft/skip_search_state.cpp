// SkipSearch on disk: encode() and restore(). Every field is checked before anything is taken over.
#include <cmath>
#include <fmt/core.h>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "actors/self_draft/skip_search.hpp"

namespace paceline {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;

Error refused(const std::string& what) {
    return Error{Errc::BadFile, "state of a layer search: " + what};
}

/// Fields of one object; the first error stays.
class Fields {
public:
    Fields(const json& object, std::string where, Status& status)
        : object_{object}, where_{std::move(where)}, status_{status} {
        if (!object.is_object()) fail(where_ + "is not an object");
    }

    [[nodiscard]] std::int64_t integer(const char* name, std::int64_t least, std::int64_t most) {
        const json* value = find(name);
        if (value == nullptr) return least;
        if (value->is_number_integer() && !too_large(*value)) {
            const auto number = value->get<std::int64_t>();
            if (number >= least && number <= most) return number;
        }
        fail(fmt::format("{}\"{}\" is {}, wanted is an integer from {} to {}", where_, name,
                         shown(*value), least, most));
        return least;
    }
    [[nodiscard]] int count(const char* name) {
        return static_cast<int>(integer(name, 0, std::numeric_limits<int>::max() - 1));
    }
    [[nodiscard]] std::uint64_t seed(const char* name) {
        const json* value = find(name);
        if (value == nullptr) return 0;
        if (value->is_number_unsigned()) return value->get<std::uint64_t>();
        fail(fmt::format("{}\"{}\" is {}, wanted is an integer from 0", where_, name,
                         shown(*value)));
        return 0;
    }
    [[nodiscard]] double number(const char* name, double least, double most) {
        const json* value = find(name);
        if (value == nullptr) return least;
        if (value->is_number()) {
            const auto found = value->get<double>();
            if (found >= least && found <= most) return found;
        }
        fail(fmt::format("{}\"{}\" is {}, wanted is a number from {} to {}", where_, name,
                         shown(*value), least, most));
        return least;
    }
    void same(const char* name, int wanted) {
        const std::int64_t found = integer(name, std::numeric_limits<std::int32_t>::min(),
                                           std::numeric_limits<std::int32_t>::max());
        if (found != wanted) {
            fail(fmt::format("{}\"{}\" is {}, this search has {}", where_, name, found, wanted));
        }
    }
    /// A set of `sublayers` sub-layers of the layers [keep_first, layers - keep_last).
    [[nodiscard]] SkipSet set(const char* name, const SkipSearchOptions& options, int sublayers) {
        const json* value = find(name);
        if (value == nullptr) return {};
        if (!value->is_string()) {
            fail(fmt::format("{}\"{}\" is {}, wanted is a text", where_, name, shown(*value)));
            return {};
        }
        Result<SkipSet> set = SkipSet::parse(value->get_ref<const std::string&>(), options.layers);
        if (!set) {
            fail(fmt::format("{}\"{}\": {}", where_, name, set.error().what));
            return {};
        }
        const int first = 2 * options.keep_first;
        const int last = 2 * (options.layers - options.keep_last);
        for (int s = 0; s < 2 * options.layers; ++s) {
            if (!set.value().skips(s) || (s >= first && s < last)) continue;
            fail(fmt::format("{}\"{}\" skips layer {}, which is to be kept", where_, name, s / 2));
            return {};
        }
        if (set.value().count() != sublayers) {
            fail(fmt::format("{}\"{}\" skips {} sub-layers, by the ratio it would be {}", where_,
                             name, set.value().count(), sublayers));
        }
        return std::move(set).value();
    }
    [[nodiscard]] const json* array(const char* name, std::size_t most) {
        const json* value = find(name);
        if (value == nullptr) return nullptr;
        if (value->is_array() && value->size() <= most) return value;
        fail(fmt::format("{}\"{}\" is not a list of at most {} entries", where_, name, most));
        return nullptr;
    }

private:
    const json* find(const char* name) {
        if (!status_.ok()) return nullptr;
        const auto at = object_.find(name);
        if (at != object_.end()) return &*at;
        fail(fmt::format("{}\"{}\" is missing", where_, name));
        return nullptr;
    }
    static bool too_large(const json& value) {
        return value.is_number_unsigned() &&
               value.get<std::uint64_t>() >
                   static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    }
    /// A value as it stands in the text, cut short.
    static std::string shown(const json& value) {
        std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
        if (text.size() > 40) text = text.substr(0, 37) + "...";
        return text;
    }
    void fail(const std::string& what) {
        if (status_.ok()) status_ = refused(what);
    }

    const json& object_;
    std::string where_;
    Status& status_;
};

}  // namespace

/// Field by field: a tree of json allocates while it is destroyed, where a lack of memory cannot be
/// reported and ends the process.
std::string SkipSearch::encode() const {
    std::string observations;
    for (const SetValue& each : observations_) {
        observations += fmt::format("{}\n  {{\n   \"matchness\": {},\n   \"skip\": {}\n  }}",
                                    observations.empty() ? "" : ",", json(each.value).dump(),
                                    json(each.set.text()).dump());
    }
    const std::pair<const char*, json> fields[] = {
        {"accepted", accepted_},
        {"best", best_.text()},
        {"drafted", drafted_},
        {"format", kFormat},
        {"keep_first", options_.keep_first},
        {"keep_last", options_.keep_last},
        {"layers", options_.layers},
        {"matchness", matchness_},
        {"proposals", proposals_},
        {"ratio", ratio_},
        {"ratio_begin", options_.ratio},
        {"seed", options_.seed},
        {"since_better", since_better_},
        {"trials", trials_},
        {"verdicts", verdicts_},
    };
    std::string text = "{";
    for (const auto& [name, value] : fields)
        text += fmt::format("\n \"{}\": {},", name, value.dump());
    return text + "\n \"observations\": [" + observations + (observations.empty() ? "" : "\n ") +
           "]\n}\n";
}

Status SkipSearch::restore(std::string_view text) {
    const json state = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (state.is_discarded()) return refused("not JSON, or cut short");
    Status status;
    Fields fields{state, "", status};
    fields.same("format", kFormat);
    fields.same("layers", options_.layers);
    fields.same("keep_first", options_.keep_first);
    fields.same("keep_last", options_.keep_last);
    SkipSearch read{options_};
    const double ratio_begin = fields.number("ratio_begin", 0.0, 1.0);
    if (status && std::abs(ratio_begin - options_.ratio) > 1e-9) {
        return refused(
            fmt::format("\"ratio_begin\" is {}, this search has {}", ratio_begin, options_.ratio));
    }
    read.ratio_ = fields.number("ratio", 0.0, ratio_begin);
    read.options_.seed = fields.seed("seed");
    if (!status) return status;
    read.best_ = fields.set("best", options_, read.wanted_count());
    read.matchness_ = fields.number("matchness", 0.0, 1.0);
    read.trials_ = fields.count("trials");
    read.since_better_ = fields.count("since_better");
    read.proposals_ = fields.integer("proposals", 0, std::numeric_limits<std::int64_t>::max() - 1);
    constexpr double kTokensMost = 1e9;
    read.accepted_ = fields.number("accepted", 0.0, kTokensMost);
    read.drafted_ = fields.number("drafted", 0.0, kTokensMost);
    read.verdicts_ = static_cast<int>(fields.integer("verdicts", 0, kVerdictsToAdjust));
    if (const json* list = fields.array("observations", kObservationsMax)) {
        for (const json& each : *list) {
            Fields one{each, fmt::format("observations[{}] ", read.observations_.size()), status};
            SkipSet set = one.set("skip", options_, read.wanted_count());
            const double matchness = one.number("matchness", 0.0, 1.0);
            if (!status) break;
            read.observations_.push_back({std::move(set), matchness});
        }
    }
    if (!status) return status;
    *this = std::move(read);
    return {};
}

}  // namespace paceline
