#include "model/templates/text_methods.hpp"

#include <algorithm>
#include <fmt/core.h>

#include "ipc/base/utf8.hpp"
#include "model/templates/builtins.hpp"
#include "model/templates/characters.hpp"
#include "model/templates/operations.hpp"
#include "model/templates/printing.hpp"

namespace paceline::jinja {
namespace {

Value texts(Run& run, std::vector<Text> parts) {
    std::vector<Value> items;
    for (Text& part : parts) {
        if (!run.step()) break;
        items.push_back(run.make(std::move(part)));
    }
    return run.list(std::move(items));
}

/// Whether the text begins (or ends) with the argument, or with one of a tuple.
Value has_end(Run& run, const Text& text, bool at_begin, const Arguments& given) {
    if (given.positional.size() != 1 || !given.keywords.empty())
        return run.fail("startswith() and endswith() are supported with one argument");
    const Value& wanted = given.positional[0];
    const bool several = wanted.is(Kind::List) && wanted.list().form == ListForm::Tuple;
    const std::vector<Value> all = several ? wanted.list().items : std::vector<Value>{wanted};
    bool found = false;
    for (const Value& one : all) {
        if (!one.is(Kind::Text))
            return run.fail(fmt::format("startswith() or endswith() of {}", type_name(one)));
        const std::string& part = one.text().bytes();
        found = found || (at_begin ? text.bytes().starts_with(part) : text.bytes().ends_with(part));
    }
    return Value::boolean(found);
}

std::vector<Text> split_at(const Text& text, const std::string& between, std::int64_t splits_max) {
    std::vector<Text> parts;
    std::size_t begin = 0;
    while (splits_max < 0 || static_cast<std::int64_t>(parts.size()) < splits_max) {
        const std::size_t end = text.bytes().find(between, begin);
        if (end == std::string::npos) break;
        parts.push_back(text.sub(begin, end - begin));
        begin = end + between.size();
    }
    parts.push_back(text.sub(begin));
    return parts;
}

std::vector<Text> split_at_last(const Text& text,
                                const std::string& between,
                                std::int64_t splits_max) {
    std::vector<Text> parts;
    std::size_t end = text.size();
    while (splits_max < 0 || static_cast<std::int64_t>(parts.size()) < splits_max) {
        if (end < between.size()) break;
        const std::size_t begin = text.bytes().rfind(between, end - between.size());
        if (begin == std::string::npos) break;
        parts.push_back(text.sub(begin + between.size(), end - begin - between.size()));
        end = begin;
    }
    parts.push_back(text.sub(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
}

Value split(Run& run, const Text& text, bool from_end, const Arguments& given) {
    const std::vector<Value> values = bound(run, "split", given, {"sep", "maxsplit"});
    if (!run.step(text.size() / 16)) return {};
    const bool limited = !values[1].is(Kind::Undefined);
    if (limited && !values[1].is_whole()) return run.fail("split() needs a whole number of parts");
    const std::int64_t splits_max = limited ? values[1].whole() : -1;
    if (values[0].is(Kind::Undefined) || values[0].is(Kind::None)) {
        if (from_end && splits_max >= 0)
            return run.fail("rsplit() at blanks with a number of parts is not supported");
        return texts(run, split_blanks(text, splits_max));
    }
    if (!values[0].is(Kind::Text) || values[0].text().empty())
        return run.fail("split() needs a text that is not empty");
    const std::string& between = values[0].text().bytes();
    return texts(run, from_end ? split_at_last(text, between, splits_max)
                               : split_at(text, between, splits_max));
}

Value strip(Run& run, const Text& text, Ends ends, const Arguments& given) {
    const std::vector<Value> values = bound(run, "strip", given, {"chars"});
    if (!run.step(text.size() / 16)) return {};
    if (values[0].is(Kind::Undefined) || values[0].is(Kind::None))
        return run.make(stripped(text, ends));
    if (!values[0].is(Kind::Text)) return run.fail("strip() needs a text");
    if (values[0].text().empty()) return run.make(Text{text});
    if (!run.step(text.size() * values[0].text().size() / 16)) return {};
    return run.make(stripped(text, ends, values[0].text().bytes()));
}

Value search(Run& run, const Text& text, std::string_view name, const Arguments& given) {
    if (given.positional.size() != 1 || !given.keywords.empty() ||
        !given.positional[0].is(Kind::Text))
        return run.fail(fmt::format("{}() is supported with one text", name));
    const std::string& wanted = given.positional[0].text().bytes();
    if (!run.step(text.size() / 16)) return {};
    if (name == "count") {
        if (wanted.empty())
            return Value::integer(static_cast<std::int64_t>(count_characters(text.bytes())) + 1);
        return Value::integer(static_cast<std::int64_t>(split_at(text, wanted, -1).size()) - 1);
    }
    const std::size_t at = name == "rfind" ? text.bytes().rfind(wanted) : text.bytes().find(wanted);
    if (at == std::string::npos)
        return name == "index" ? run.fail("index() of what is not in the text")
                               : Value::integer(-1);
    return Value::integer(
        static_cast<std::int64_t>(count_characters(std::string_view{text.bytes()}.substr(0, at))));
}

/// isdigit(), isalpha(), isspace(): of ASCII, but for isspace().
Value character_test(Run& run, const Text& text, std::string_view name) {
    const std::string_view bytes = text.bytes();
    bool all = !bytes.empty();
    for (std::size_t at = 0; at < bytes.size() && all;) {
        const utf8::Step step = utf8::first(bytes.substr(at));
        const char32_t code = step.code;
        if (name != "isspace" && code >= 0x80)
            return run.fail(fmt::format("{}() beyond ASCII is not supported", name));
        const bool digit = code >= '0' && code <= '9';
        const bool letter = (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
        all = name == "isspace" ? is_white_space(code) : name == "isdigit" ? digit : letter;
        at += step.bytes;
    }
    return Value::boolean(all);
}

Value without_end(Run& run, const Text& text, bool at_begin, const Arguments& given) {
    const std::vector<Value> values = bound(run, "removeprefix", given, {"part"});
    if (run.failed()) return {};
    if (!values[0].is(Kind::Text)) return run.fail("removeprefix() and removesuffix() need a text");
    const std::string& part = values[0].text().bytes();
    if (at_begin)
        return run.make(text.bytes().starts_with(part) ? text.sub(part.size()) : Text{text});
    return run.make(text.bytes().ends_with(part) ? text.sub(0, text.size() - part.size())
                                                 : Text{text});
}

/// str.title(): the first letter of each word in title case.
Text titled(const Text& text) {
    Text out;
    bool in_word = false;
    const std::string_view bytes = text.bytes();
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t count = utf8::first(bytes.substr(at)).bytes;
        const Text character = text.sub(at, count);
        const Text lower = in_case(character, Case::Lower), upper = in_case(character, Case::Upper);
        out.append(in_word ? lower : in_case(character, Case::Title));
        in_word = lower.bytes() != upper.bytes();
        at += count;
    }
    return out;
}

}  // namespace

Text capitalized(const Text& text) {
    if (text.empty()) return text;
    const std::size_t first = utf8::first(text.bytes()).bytes;
    Text out = in_case(text.sub(0, first), Case::Title);
    out.append(in_case(text.sub(first), Case::Lower));
    return out;
}

Value replaced(Run& run, const Text& text, const Text& old, const Text& with, std::int64_t count) {
    Text out;
    std::size_t at = 0;
    if (old.empty()) {
        const std::vector<std::size_t> starts = character_starts(text.bytes());
        for (const std::size_t begin : starts) {
            if (count == 0 || run.failed()) break;
            run.append(out, text.sub(at, begin - at));
            run.append(out, with);
            at = begin;
            --count;
        }
    }
    while (!old.empty() && count != 0 && run.step()) {
        const std::size_t found = text.bytes().find(old.bytes(), at);
        if (found == std::string::npos) break;
        run.append(out, text.sub(at, found - at));
        run.append(out, with);
        at = found + old.size();
        --count;
    }
    run.append(out, text.sub(at));
    return run.make(std::move(out));
}

Value joined(Run& run, const Text& between, const std::vector<Value>& items) {
    Text out;
    for (std::size_t i = 0; i < items.size() && run.step(); ++i) {
        if (i > 0) run.append(out, between);
        run.append(out, as_text(run, items[i]));
    }
    return run.make(std::move(out));
}

Value text_method(Run& run, const Text& text, std::string_view name, const Arguments& given) {
    run.step(text.size() / 16);
    if (text.is_markup())
        return run.fail("methods of a text that went through '| safe' are not supported");
    if (name == "split" || name == "rsplit") return split(run, text, name == "rsplit", given);
    if (name == "startswith" || name == "endswith")
        return has_end(run, text, name == "startswith", given);
    if (name == "strip") return strip(run, text, Ends::Both, given);
    if (name == "lstrip") return strip(run, text, Ends::Left, given);
    if (name == "rstrip") return strip(run, text, Ends::Right, given);
    if (name == "find" || name == "rfind" || name == "count" || name == "index")
        return search(run, text, name, given);
    if (name == "removeprefix" || name == "removesuffix")
        return without_end(run, text, name == "removeprefix", given);
    if (name == "replace") {
        const std::vector<Value> values = bound(run, name, given, {"old", "new", "count"});
        if (run.failed()) return {};
        const bool limited = !values[2].is(Kind::Undefined);
        if (!values[0].is(Kind::Text) || !values[1].is(Kind::Text) ||
            (limited && !values[2].is_whole()))
            return run.fail("replace() needs two texts and may have a number");
        return replaced(run, text, values[0].text(), values[1].text(),
                        limited ? values[2].whole() : -1);
    }
    if (name == "join") {
        const std::vector<Value> values = bound(run, name, given, {"iterable"});
        const std::vector<Value> items = iterate(run, values[0]);
        for (const Value& item : items) {
            if (!item.is(Kind::Text)) return run.fail("join() needs texts");
        }
        return joined(run, text, items);
    }
    bound(run, name, given, {});
    if (run.failed()) return {};
    if (name == "splitlines") return texts(run, split_lines(text));
    if (name == "upper") return run.make(in_case(text, Case::Upper));
    if (name == "lower") return run.make(in_case(text, Case::Lower));
    if (name == "capitalize") return run.make(capitalized(text));
    if (name == "title") return run.make(titled(text));
    return character_test(run, text, name);
}

}  // namespace paceline::jinja
