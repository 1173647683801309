// Filters of single values: texts, numbers, JSON. Those of lists are in list_filters.cpp.
#include <algorithm>
#include <fmt/core.h>

#include "model/templates/builtins.hpp"
#include "model/templates/list_filters.hpp"
#include "model/templates/number_filters.hpp"
#include "model/templates/operations.hpp"
#include "model/templates/printing.hpp"
#include "model/templates/text_methods.hpp"

namespace paceline::jinja {
namespace {

using Filter = Value (*)(Run&, const Value&, const Arguments&);

Value default_filter(Run& run, const Value& object, const Arguments& given) {
    const std::vector<Value> values = bound(run, "default", given, {"default_value", "boolean"});
    const bool absent = object.is(Kind::Undefined) || (truth(values[1]) && !truth(object));
    if (!absent) return object;
    return given.positional.empty() && given.keywords.empty() ? run.text("") : values[0];
}

Value indent(Run& run, const Value& object, const Arguments& given) {
    const std::vector<Value> values = bound(run, "indent", given, {"width", "first", "blank"});
    if (run.failed()) return {};
    Text blanks{"    ", Origin::Template};
    if (values[0].is(Kind::Text)) {
        blanks = values[0].text();
    } else if (values[0].is_whole()) {
        const std::int64_t width = std::max<std::int64_t>(0, values[0].whole());
        if (width > 1000) return run.fail("indent() of more than 1000 blanks");
        blanks = Text{std::string(static_cast<std::size_t>(width), ' '), Origin::Template};
    }
    Text whole = as_text(run, object);
    whole.append("\n", Origin::Template);  // as jinja2: an empty line at the end counts
    const std::vector<Text> lines = split_lines(whole);
    Text out;
    for (std::size_t i = 0; i < lines.size() && run.step(); ++i) {
        if (i > 0) run.append(out, "\n", Origin::Template);
        const bool wanted = i == 0 ? truth(values[1]) : truth(values[2]) || !lines[i].empty();
        if (wanted) run.append(out, blanks);
        run.append(out, lines[i]);
    }
    return run.make(std::move(out));
}

/// The first character in upper case, the others in lower case.
void append_word(Text& out, const Text& word) {
    const std::size_t first = character_starts(word.bytes())[word.empty() ? 0 : 1];
    out.append(in_case(word.sub(0, first), Case::Upper));
    out.append(in_case(word.sub(first), Case::Lower));
}

/// As jinja2's title: words begin after blanks, dashes and opening brackets.
Value title(Run& run, const Value& object, const Arguments& given) {
    bound(run, "title", given, {});
    const Text text = as_text(run, object);
    Text out;
    std::size_t begin = 0;
    const std::vector<std::size_t> starts = character_starts(text.bytes());
    for (std::size_t i = 0; i + 1 < starts.size() && run.step(); ++i) {
        const Text one = text.sub(starts[i], starts[i + 1] - starts[i]);
        const bool between = stripped(one, Ends::Both).empty() ||
                             (one.size() == 1 && std::string_view{"-({[<"}.find(one.bytes()[0]) !=
                                                     std::string_view::npos);
        if (between) {
            append_word(out, text.sub(begin, starts[i] - begin));
            out.append(one);
            begin = starts[i + 1];
        }
    }
    append_word(out, text.sub(begin));
    return run.make(std::move(out));
}

Value trim(Run& run, const Value& object, const Arguments& given) {
    const std::vector<Value> values = bound(run, "trim", given, {"chars"});
    if (run.failed()) return {};
    const bool plain = values[0].is(Kind::Undefined) || values[0].is(Kind::None);
    if (!plain && !values[0].is(Kind::Text)) return run.fail("trim() needs a text");
    if (!plain && values[0].text().empty()) return run.make(as_text(run, object));
    return run.make(stripped(as_text(run, object), Ends::Both,
                             plain ? std::string_view{} : values[0].text().bytes()));
}

Value replace(Run& run, const Value& object, const Arguments& given) {
    const std::vector<Value> values = bound(run, "replace", given, {"old", "new", "count"});
    if (run.failed()) return {};
    const bool all = values[2].is(Kind::Undefined) || values[2].is(Kind::None);
    if (!all && !values[2].is_whole()) return run.fail("replace() needs a whole number");
    return replaced(run, as_text(run, object), as_text(run, values[0]), as_text(run, values[1]),
                    all ? -1 : values[2].whole());
}

Value tojson(Run& run, const Value& object, const Arguments& given) {
    const std::vector<Value> values =
        bound(run, "tojson", given, {"ensure_ascii", "indent", "separators", "sort_keys"});
    if (run.failed()) return {};
    JsonStyle style;
    style.ensure_ascii = truth(values[0]);
    style.sort_keys = truth(values[3]);
    if (values[1].is_whole()) {
        if (values[1].whole() > 1000) return run.fail("tojson(indent) of more than 1000 blanks");
        const std::int64_t width = std::max<std::int64_t>(0, values[1].whole());
        style.indent = std::string(static_cast<std::size_t>(width), ' ');
    } else if (values[1].is(Kind::Text)) {
        style.indent = values[1].text().bytes();
    }
    if (style.indent) style.item_separator = ",";
    if (values[2].is(Kind::List)) {
        const std::vector<Value>& both = values[2].list().items;
        if (both.size() != 2 || !both[0].is(Kind::Text) || !both[1].is(Kind::Text))
            return run.fail("tojson(separators) needs two texts");
        style.item_separator = both[0].text().bytes();
        style.key_separator = both[1].text().bytes();
    }
    return run.make(as_json(run, object, style));
}

Value text_filter(Run& run, std::string_view name, const Value& object, const Arguments& given) {
    bound(run, name, given, {});
    if (run.failed()) return {};
    Text text = as_text(run, object);
    run.step(text.size() / 16);
    if (name == "upper") text = in_case(text, Case::Upper);
    if (name == "lower") text = in_case(text, Case::Lower);
    if (name == "capitalize") text = capitalized(text);
    if (name == "safe") text.set_markup();
    return run.make(std::move(text));
}

Value length_filter(Run& run, const Value& object, const Arguments& given) {
    bound(run, "length", given, {});
    const std::optional<std::int64_t> count = length(run, object);
    return count ? Value::integer(*count) : Value{};
}

}  // namespace

Value apply_filter(Run& run, std::string_view name, const Value& object, const Arguments& given) {
    static constexpr std::pair<std::string_view, Filter> kFilters[] = {{"default", default_filter},
                                                                       {"d", default_filter},
                                                                       {"indent", indent},
                                                                       {"title", title},
                                                                       {"trim", trim},
                                                                       {"replace", replace},
                                                                       {"tojson", tojson},
                                                                       {"length", length_filter},
                                                                       {"count", length_filter},
                                                                       {"int", int_filter},
                                                                       {"float", float_filter},
                                                                       {"round", round_filter},
                                                                       {"abs", abs_filter}};
    if (run.failed()) return {};
    if (object.is(Kind::Text) && object.text().is_markup() && name != "safe" && name != "tojson" &&
        name != "length")
        return run.fail(fmt::format("the filter '{}' after '| safe' is not supported", name));
    for (const auto& [known, filter] : kFilters) {
        if (known == name) return filter(run, object, given);
    }
    if (name == "string" || name == "safe" || name == "upper" || name == "lower" ||
        name == "capitalize")
        return text_filter(run, name, object, given);
    return list_filter(run, name, object, given);
}

}  // namespace paceline::jinja
