#include "model/tokenizer/chat_tools.hpp"

#include <fmt/core.h>
#include <string>

#include "model/templates/json_value.hpp"
#include "model/templates/operations.hpp"

namespace paceline {
namespace {

using jinja::Kind;
using jinja::Value;

Error bad(const std::string& what) {
    return {Errc::BadFile, what};
}

/// A member that may be absent.
Status check_member(const Value& object, const std::string& at, const char* key, Kind kind) {
    const Value* value = jinja::find(object.dict(), key);
    if (value == nullptr || value->is(kind)) return {};
    return bad(at + key + " must be " + (kind == Kind::Text ? "a text" : "an object"));
}

Status check_function(const Value& function, const std::string& at) {
    const Value* name = jinja::find(function.dict(), "name");
    if (name == nullptr) return bad(at + "name is missing");
    if (!name->is(Kind::Text) || name->text().bytes().empty())
        return bad(at + "name must be a text that is not empty");
    if (Status s = check_member(function, at, "description", Kind::Text); !s) return s;
    return check_member(function, at, "parameters", Kind::Dict);
}

Status check_tool(const Value& tool, const std::string& place) {
    if (!tool.is(Kind::Dict)) return bad(place + " must be an object");
    if (Status s = check_member(tool, place + ".", "type", Kind::Text); !s) return s;
    const Value* function = jinja::find(tool.dict(), "function");
    if (function == nullptr && jinja::find(tool.dict(), "name") != nullptr)
        return check_function(tool, place + ".");
    if (function == nullptr) return bad(place + ".function is missing");
    if (!function->is(Kind::Dict)) return bad(place + ".function must be an object");
    return check_function(*function, place + ".function.");
}

}  // namespace

Status check_chat_tools(std::string_view json) {
    jinja::Heap heap;
    const Result<Value> parsed = jinja::json_value(heap, json);
    if (!parsed) return bad(parsed.error().what);
    if (!parsed.value().is(Kind::List)) return bad("it must be a list of tools");
    std::size_t index = 0;
    for (const Value& tool : parsed.value().list().items) {
        if (Status s = check_tool(tool, fmt::format("[{}]", index++)); !s) return s;
    }
    return {};
}

}  // namespace paceline
