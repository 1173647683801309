// Functions that a template can call by name.
#include <array>
#include <fmt/core.h>

#include "model/templates/builtins.hpp"
#include "model/templates/operations.hpp"
#include "model/templates/printing.hpp"

namespace paceline::jinja {
namespace {

constexpr std::int64_t kRangeMax = 100'000;  // as the sandbox of jinja2

Value range(Run& run, const Arguments& given) {
    const std::vector<Value>& values = given.positional;
    if (values.empty() || values.size() > 3 || !given.keywords.empty())
        return run.fail("range() takes one to three numbers");
    std::array<std::int64_t, 3> bounds{0, 0, 1};
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!values[i].is_whole()) return run.fail("range() needs whole numbers");
        bounds[values.size() == 1 ? 1 : i] = values[i].whole();
    }
    const auto [begin, end, step] = bounds;
    if (step == 0) return run.fail("the step of range() cannot be zero");
    std::vector<Value> items;
    for (std::int64_t at = begin; step > 0 ? at < end : at > end;) {
        if (static_cast<std::int64_t>(items.size()) == kRangeMax)
            return run.fail(fmt::format("range() of more than {} numbers", kRangeMax));
        items.push_back(Value::integer(at));
        if (__builtin_add_overflow(at, step, &at)) break;
    }
    List made{std::move(items), ListForm::Range};
    made.bounds = {.start = begin, .stop = end, .step = step};
    return run.make(std::move(made));
}

/// The dictionaries and pairs that dict() and namespace() are given, and their keywords.
Dict collected(Run& run, const Arguments& given) {
    Dict dict;
    const auto put = [&](const Value& key, const Value& value) {
        for (auto& [known, old] : dict.items) {
            if (!equal(run, known, key)) continue;
            old = value;
            return;
        }
        dict.items.emplace_back(key, value);
    };
    for (const Value& value : given.positional) {
        if (value.is(Kind::Dict)) {
            for (const auto& [key, item] : value.dict().items) put(key, item);
            continue;
        }
        for (const Value& pair : iterate(run, value)) {
            const std::vector<Value> both = iterate(run, pair);
            if (both.size() != 2) {
                run.fail("a dict is made of pairs");
                break;
            }
            put(both[0], both[1]);
        }
    }
    for (const auto& [key, value] : given.keywords) put(run.text(key), value);
    return dict;
}

Value make_namespace(Run& run, const Arguments& given) {
    Namespace space;
    for (const auto& [key, value] : collected(run, given).items) {
        if (!key.is(Kind::Text)) return run.fail("the attributes of a namespace have names");
        if (!check_namespace_name(run, key.text().bytes())) return {};
        space.names.emplace_back(key.text().bytes(), value);
    }
    return run.make(std::move(space));
}

}  // namespace

Value call_function(Run& run, std::string_view name, const Arguments& given) {
    if (name == "range") return range(run, given);
    if (name == "namespace") return make_namespace(run, given);
    if (name == "dict") return run.make(collected(run, given));
    const std::vector<Value> one =
        bound(run, name, given, {name == "strftime_now" ? "format" : "message"});
    if (run.failed()) return {};
    if (name == "strftime_now") {
        if (!one[0].is(Kind::Text)) return run.fail("strftime_now() needs a format");
        return run.make(formatted_time(run, run.now(), one[0].text()));
    }
    return run.fail("it refuses the conversation: " + as_text(run, one[0]).bytes());
}

std::vector<Value> bound(Run& run,
                         std::string_view function,
                         const Arguments& given,
                         std::initializer_list<std::string_view> names) {
    std::vector<Value> values(names.size());
    if (given.positional.size() > names.size()) {
        run.fail(fmt::format("'{}' takes at most {} arguments", function, names.size()));
        return values;
    }
    std::copy(given.positional.begin(), given.positional.end(), values.begin());
    for (const auto& [keyword, value] : given.keywords) {
        std::size_t at = 0;
        while (at < names.size() && names.begin()[at] != keyword) ++at;
        if (at < given.positional.size() || at == names.size()) {
            run.fail(
                fmt::format("'{}' has no argument '{}', or was given it twice", function, keyword));
            return values;
        }
        values[at] = value;
    }
    return values;
}

}  // namespace paceline::jinja
