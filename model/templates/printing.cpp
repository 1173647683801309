#include "model/templates/printing.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/core.h>

#include "ipc/base/utf8.hpp"
#include "model/templates/characters.hpp"
#include "model/templates/interpreter.hpp"
#include "model/templates/operations.hpp"

namespace paceline::jinja {
namespace {

std::string escaped(char32_t code) {
    const auto number = static_cast<std::uint32_t>(code);
    if (number <= 0xff) return fmt::format("\\x{:02x}", number);
    if (number <= 0xffff) return fmt::format("\\u{:04x}", number);
    return fmt::format("\\U{:08x}", number);
}

/// repr(). A namespace that contains itself is "{...}" the second time, as in Python; nothing else
/// can.
class ReprWriter {
public:
    explicit ReprWriter(Run& run) : run_{run} {}
    void write(const Value& value);
    Text take() { return std::move(out_); }

private:
    void plain(std::string_view text) { run_.append(out_, text, Origin::Template); }
    void write_text(const Text& text);
    void write_quoted(const Text& text);
    void write_items(std::string_view open,
                     const std::vector<Value>& items,
                     std::string_view close);
    void write_list(const List& list);
    template <class Items, class WriteKey>
    void write_pairs(const Items& items, const WriteKey& write_key);
    void write_namespace(const Namespace& space);

    Run& run_;
    Text out_;
    std::vector<const Namespace*> open_;  // those that are being written
};

void ReprWriter::write_quoted(const Text& text) {
    const std::string_view bytes = text.bytes();
    const bool has_single = bytes.find('\'') != bytes.npos;
    const char quote = has_single && bytes.find('"') == bytes.npos ? '"' : '\'';
    plain(std::string_view{&quote, 1});
    for (std::size_t at = 0; at < bytes.size() && run_.step();) {
        const utf8::Step step = utf8::first(bytes.substr(at));
        const char32_t code = step.code;
        std::string shown{bytes.substr(at, step.bytes)};
        if (code == static_cast<unsigned char>(quote) || code == '\\') {
            shown.insert(0, "\\");
        } else if (code == '\n' || code == '\r' || code == '\t') {
            shown = code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
        } else if (!is_printable(code)) {
            shown = escaped(code);
        }
        run_.append(out_, shown, text.origin(at));
        at += step.bytes;
    }
    plain(std::string_view{&quote, 1});
}

void ReprWriter::write_text(const Text& text) {
    if (text.is_markup()) plain("Markup(");
    write_quoted(text);
    if (text.is_markup()) plain(")");
}

void ReprWriter::write_items(std::string_view open,
                             const std::vector<Value>& items,
                             std::string_view close) {
    plain(open);
    for (std::size_t i = 0; i < items.size() && !run_.failed(); ++i) {
        if (i > 0) plain(", ");
        write(items[i]);
    }
    plain(close);
}

void ReprWriter::write_list(const List& list) {
    switch (list.form) {
        case ListForm::List:
            return write_items("[", list.items, "]");
        case ListForm::Tuple:
            return write_items("(", list.items, list.items.size() == 1 ? ",)" : ")");
        case ListForm::Range:
            plain(fmt::format("range({}, {}", list.bounds.start, list.bounds.stop));
            if (list.bounds.step != 1) plain(fmt::format(", {}", list.bounds.step));
            return plain(")");
        case ListForm::Keys:
            return write_items("dict_keys([", list.items, "])");
        case ListForm::Values:
            return write_items("dict_values([", list.items, "])");
        case ListForm::Items:
            return write_items("dict_items([", list.items, "])");
        case ListForm::Iterator:
            break;
    }
    // Python would print its address.
    run_.fail("an iterator is printed; put '| list' behind it");
}

template <class Items, class WriteKey>
void ReprWriter::write_pairs(const Items& items, const WriteKey& write_key) {
    plain("{");
    bool first = true;
    for (const auto& [key, value] : items) {
        if (!first) plain(", ");
        first = false;
        write_key(key);
        plain(": ");
        write(value);
        if (run_.failed()) return;
    }
    plain("}");
}

void ReprWriter::write_namespace(const Namespace& space) {
    plain("<Namespace ");
    if (std::find(open_.begin(), open_.end(), &space) != open_.end()) {
        plain("{...}");
    } else {
        open_.push_back(&space);
        // The names may be the keys of a user's dictionary.
        write_pairs(space.names, [this](const std::string& name) {
            write_quoted(Text{name, Origin::User});
        });
        open_.pop_back();
    }
    plain(">");
}

void ReprWriter::write(const Value& value) {
    const Run::Level level{run_};
    if (!run_.step()) return;
    switch (value.kind()) {
        case Kind::Text:
            return write_text(value.text());
        case Kind::List:
            return write_list(value.list());
        case Kind::Dict:
            return write_pairs(value.dict().items, [this](const Value& key) { write(key); });
        case Kind::Undefined:
            return plain("Undefined");
        case Kind::None:
            return plain("None");
        case Kind::Bool:
            return plain(value.whole() != 0 ? "True" : "False");
        case Kind::Int:
            return plain(std::to_string(value.whole()));
        case Kind::Float:
            return plain(float_text(value.real()));
        case Kind::Namespace:
            return write_namespace(value.space());
        case Kind::Macro:
            plain("<Macro ");
            write_quoted(Text{value.macro().statement->name, Origin::Template});
            return plain(">");
        case Kind::Loop:
            return plain(fmt::format("<LoopContext {}/{}>", value.loop().index + 1,
                                     value.loop().items->size()));
        case Kind::Callable:
            run_.fail(fmt::format("the {} '{}' cannot be printed",
                                  value.callable().is_method ? "method" : "function",
                                  value.callable().name));
    }
}

class JsonWriter {
public:
    JsonWriter(Run& run, const JsonStyle& style) : run_{run}, style_{style} {}
    void write(const Value& value);
    Text take() { return std::move(out_); }

private:
    void plain(std::string_view text) { run_.append(out_, text, Origin::Template); }
    void new_line() {
        if (!style_.indent) return;
        plain("\n");
        for (int i = 0; i < level_; ++i) plain(*style_.indent);
    }
    void write_text(const Text& text);
    void write_character(char32_t code, std::string_view bytes, Origin origin);
    void write_list(const Value& value);
    void write_dict(const Dict& dict);
    void write_key(const Value& key);

    Run& run_;
    const JsonStyle& style_;
    Text out_;
    int level_ = 0;
};

std::string json_float(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_text(value);
}

void JsonWriter::write_character(char32_t code, std::string_view bytes, Origin origin) {
    constexpr std::string_view kNamed = "\"\\\n\r\t\b\f", kNames = "\"\\nrtbf";
    const std::size_t named = code < 0x80 ? kNamed.find(static_cast<char>(code)) : kNamed.npos;
    if (named != kNamed.npos) {
        run_.append(out_, std::string{'\\', kNames[named]}, origin);
    } else if (code < 0x20 || (style_.ensure_ascii && code == 0x7f)) {
        run_.append(out_, fmt::format("\\u{:04x}", static_cast<std::uint32_t>(code)), origin);
    } else if (style_.ensure_ascii && code > 0xffff) {
        const std::uint32_t rest = static_cast<std::uint32_t>(code) - 0x10000;
        run_.append(
            out_,
            fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10U), 0xdc00 + (rest & 0x3ffU)),
            origin);
    } else if (style_.ensure_ascii && code >= 0x80) {
        run_.append(out_, fmt::format("\\u{:04x}", static_cast<std::uint32_t>(code)), origin);
    } else {
        run_.append(out_, bytes, origin);
    }
}

void JsonWriter::write_text(const Text& text) {
    plain("\"");
    const std::string_view bytes = text.bytes();
    for (std::size_t at = 0; at < bytes.size() && run_.step();) {
        const utf8::Step step = utf8::first(bytes.substr(at));
        write_character(step.code, bytes.substr(at, step.bytes), text.origin(at));
        at += step.bytes;
    }
    plain("\"");
}

void JsonWriter::write_list(const Value& value) {
    const List& list = value.list();
    if (list.form != ListForm::List && list.form != ListForm::Tuple) {
        run_.fail(fmt::format("{} has no JSON; put '| list' before '| tojson'", type_name(value)));
        return;
    }
    if (list.items.empty()) return plain("[]");
    plain("[");
    ++level_;
    for (std::size_t i = 0; i < list.items.size() && !run_.failed(); ++i) {
        if (i > 0) plain(style_.item_separator);
        new_line();
        write(list.items[i]);
    }
    --level_;
    new_line();
    plain("]");
}

void JsonWriter::write_key(const Value& key) {
    switch (key.kind()) {
        case Kind::Text:
            return write_text(key.text());
        case Kind::Float:
            return plain("\"" + json_float(key.real()) + "\"");
        case Kind::Int:
        case Kind::Bool:
        case Kind::None:
            plain("\"");
            write(key);
            return plain("\"");
        default:
            run_.fail(fmt::format("{} cannot be a key of JSON", type_name(key)));
    }
}

void JsonWriter::write_dict(const Dict& dict) {
    if (dict.items.empty()) return plain("{}");
    std::vector<std::pair<Value, Value>> items = dict.items;
    if (style_.sort_keys) {
        std::stable_sort(items.begin(), items.end(), [this](const auto& a, const auto& b) {
            return !run_.failed() && order(run_, a.first, b.first) == Order::Less;
        });
    }
    plain("{");
    ++level_;
    for (std::size_t i = 0; i < items.size() && !run_.failed(); ++i) {
        if (i > 0) plain(style_.item_separator);
        new_line();
        write_key(items[i].first);
        plain(style_.key_separator);
        write(items[i].second);
    }
    --level_;
    new_line();
    plain("}");
}

void JsonWriter::write(const Value& value) {
    const Run::Level level{run_};
    if (!run_.step()) return;
    switch (value.kind()) {
        case Kind::Text:
            return write_text(value.text());
        case Kind::List:
            return write_list(value);
        case Kind::Dict:
            return write_dict(value.dict());
        case Kind::None:
            return plain("null");
        case Kind::Bool:
            return plain(value.whole() != 0 ? "true" : "false");
        case Kind::Int:
            return plain(std::to_string(value.whole()));
        case Kind::Float:
            return plain(json_float(value.real()));
        default:
            run_.fail(fmt::format("{} has no JSON", type_name(value)));
    }
}

}  // namespace

std::string float_text(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    std::array<char, 40> buffer{};
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                   std::chars_format::scientific);
    const std::string_view shortest{buffer.data(),
                                    static_cast<std::size_t>(end.ptr - buffer.data())};
    const std::size_t e = shortest.find('e');
    int exponent = 0;
    const std::size_t number = shortest[e + 1] == '+' ? e + 2 : e + 1;
    std::from_chars(shortest.data() + number, shortest.data() + shortest.size(), exponent);
    if (exponent < -4 || exponent >= 16) return std::string{shortest};
    std::string digits;
    for (const char c : shortest.substr(0, e)) {
        if (c >= '0' && c <= '9') digits.push_back(c);
    }
    const std::string sign = value < 0 || std::signbit(value) ? "-" : "";
    if (exponent < 0)
        return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
    const auto point = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() <= point)
        return sign + digits + std::string(point - digits.size(), '0') + ".0";
    return sign + digits.substr(0, point) + "." + digits.substr(point);
}

Text as_text(Run& run, const Value& value) {
    if (value.is(Kind::Text)) return value.text();
    if (value.is(Kind::Undefined)) return {};
    ReprWriter writer{run};
    writer.write(value);
    return writer.take();
}

Text as_json(Run& run, const Value& value, const JsonStyle& style) {
    JsonWriter writer{run, style};
    writer.write(value);
    return writer.take();
}

}  // namespace paceline::jinja
