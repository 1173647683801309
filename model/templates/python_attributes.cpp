#include "model/templates/python_attributes.hpp"

#include <algorithm>
#include <span>

namespace paceline::jinja {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::string_view kTextMethods[] = {
    "capitalize", "count",        "endswith",   "find",       "index",        "isalpha",
    "isdigit",    "isspace",      "join",       "lower",      "lstrip",       "replace",
    "rfind",      "removeprefix", "rsplit",     "rstrip",     "removesuffix", "split",
    "title",      "strip",        "splitlines", "startswith", "upper"};
constexpr std::string_view kTextOthers[] = {
    "casefold", "center",      "encode",    "expandtabs", "format",     "format_map",
    "isalnum",  "isascii",     "isdecimal", "islower",    "isnumeric",  "isidentifier",
    "istitle",  "isprintable", "isupper",   "ljust",      "maketrans",  "partition",
    "rindex",   "rjust",       "swapcase",  "translate",  "rpartition", "zfill",
    "escape",   "striptags",   "unescape"};
constexpr std::size_t kOfMarkupAlone = 3;  // the last ones

constexpr std::string_view kDictMethods[] = {"copy", "get", "items", "keys", "values"};
constexpr std::string_view kDictForbidden[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kDictOthers[] = {"fromkeys"};

constexpr std::string_view kListForbidden[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kSetForbidden[] = {"add"};
constexpr std::string_view kLoopMethods[] = {"cycle"};
constexpr std::string_view kListMethods[] = {"copy", "count", "index"};
constexpr std::string_view kTupleMethods[] = {"count", "index"};  // and of a range

constexpr std::string_view kIteratorOthers[] = {"close", "send", "throw"};
constexpr std::string_view kSetViewOthers[] = {"isdisjoint", "mapping"};
constexpr std::string_view kValuesOthers[] = {"mapping"};

constexpr std::string_view kWholeOthers[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "imag",
    "numerator",        "real",      "is_integer", "to_bytes"};
constexpr std::string_view kFloatOthers[] = {
    "as_integer_ratio", "conjugate", "fromhex", "hex", "imag", "is_integer", "real"};

bool contains(Names names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

/// What a type has; forbidden are those whose names an object's items could have too.
struct Attributes {
    Names methods = {};
    Names forbidden = {};
    Names unsupported = {};
};

Attributes attributes_of(const List& list) {
    switch (list.form) {
        case ListForm::List:
            return {.methods = kListMethods, .forbidden = kListForbidden};
        case ListForm::Tuple:
        case ListForm::Range:
            return {.methods = kTupleMethods};
        case ListForm::Iterator:
            return {.unsupported = kIteratorOthers};
        case ListForm::Keys:
        case ListForm::Items:
            return {.unsupported = kSetViewOthers};
        case ListForm::Values:
            return {.unsupported = kValuesOthers};
    }
    return {};
}

Attributes attributes_of(const Callable& callable) {
    if (!callable.is_method && callable.name == "dict") return {.unsupported = kDictOthers};
    return {};
}

Attributes attributes_of(const Value& object) {
    switch (object.kind()) {
        case Kind::Bool:
        case Kind::Int:
            return {.unsupported = kWholeOthers};
        case Kind::Float:
            return {.unsupported = kFloatOthers};
        case Kind::Text: {
            const Names others{kTextOthers};
            const bool markup = object.text().is_markup();
            return {.methods = kTextMethods,
                    .unsupported = markup ? others : others.first(others.size() - kOfMarkupAlone)};
        }
        case Kind::Dict:
            return {
                .methods = kDictMethods, .forbidden = kDictForbidden, .unsupported = kDictOthers};
        case Kind::List:
            return attributes_of(object.list());
        case Kind::Callable:
            return attributes_of(object.callable());
        default:
            return {};
    }
}

}  // namespace

bool is_known_method(std::string_view name) {
    for (const Names names :
         {Names{kTextMethods}, Names{kDictMethods}, Names{kDictForbidden}, Names{kListMethods},
          Names{kListForbidden}, Names{kSetForbidden}, Names{kLoopMethods}}) {
        if (contains(names, name)) return true;
    }
    return false;
}

Attribute python_attribute(const Value& object, std::string_view name) {
    const Attributes has = attributes_of(object);
    if (contains(has.methods, name)) return Attribute::Method;
    if (contains(has.forbidden, name)) return Attribute::Forbidden;
    return contains(has.unsupported, name) ? Attribute::Unsupported : Attribute::None;
}

}  // namespace paceline::jinja
