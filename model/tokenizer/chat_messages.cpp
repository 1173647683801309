#include "model/tokenizer/chat_messages.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <string>
#include <utility>

#include "model/templates/json_value.hpp"

namespace paceline {
namespace {

using jinja::Dict;
using jinja::Heap;
using jinja::Kind;
using jinja::List;
using jinja::Value;

Value* find(Dict& dict, std::string_view key) {
    const auto found = std::find_if(dict.items.begin(), dict.items.end(), [&](const auto& item) {
        return item.first.text().bytes() == key;
    });
    return found == dict.items.end() ? nullptr : &found->second;
}

void drop_nulls(Dict& dict) {
    std::erase_if(dict.items, [](const auto& item) { return item.second.is(Kind::None); });
}

/// Where the keys stand is seen by templates that print a whole message: `thinking` is first, also
/// where the message has it elsewhere, and a `reasoning_content` that was missing is last.
void fill_reasoning(Heap& heap, Dict& message) {
    Value thoughts;
    for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
        const Value* value = find(message, key);
        if (thoughts.is(Kind::Undefined) && value != nullptr) thoughts = *value;
    }
    if (thoughts.is(Kind::Undefined)) return;
    const auto key = [&](const char* name) {
        return heap.add(jinja::Text{name, jinja::Origin::Template});
    };
    const Value* stated = find(message, "thinking");
    const Value thinking = stated != nullptr ? *stated : thoughts;
    std::erase_if(message.items,
                  [](const auto& item) { return item.first.text().bytes() == "thinking"; });
    message.items.insert(message.items.begin(), {key("thinking"), thinking});
    if (find(message, "reasoning_content") == nullptr)
        message.items.emplace_back(key("reasoning_content"), thoughts);
}

/// `call` with its function's arguments as an object.
Result<Value> with_parsed_arguments(Heap& heap, const Value& call, CutArguments cut) {
    if (!call.is(Kind::Dict)) return call;
    Dict outer = call.dict();
    Value* function = find(outer, "function");
    if (function == nullptr || !function->is(Kind::Dict)) return call;
    Dict inner = function->dict();
    Value* arguments = find(inner, "arguments");
    if (arguments == nullptr || !arguments->is(Kind::Text)) return call;
    Result<Value> parsed = jinja::json_value(heap, arguments->text().bytes());
    if (!parsed && cut == CutArguments::AsText) return call;
    if (!parsed && cut == CutArguments::AsEmpty) parsed = heap.add(Dict{});
    if (!parsed || !parsed.value().is(Kind::Dict)) {
        return Error{Errc::BadArgument,
                     "tool_calls: arguments are a text, but " +
                         (parsed ? std::string{"not that of a JSON object"} : parsed.error().what)};
    }
    *arguments = parsed.value();
    *function = heap.add(std::move(inner));
    return heap.add(std::move(outer));
}

Status parse_arguments(Heap& heap, Dict& message, CutArguments cut) {
    Value* calls = find(message, "tool_calls");
    if (calls == nullptr || !calls->is(Kind::List)) return {};
    List list;
    for (const Value& call : calls->list().items) {
        const Result<Value> parsed = with_parsed_arguments(heap, call, cut);
        if (!parsed) return parsed.error();
        list.items.push_back(parsed.value());
    }
    *calls = heap.add(std::move(list));
    return {};
}

}  // namespace

Result<Value> chat_messages(Heap& heap, std::string_view json, CutArguments cut) {
    const Result<Value> parsed = jinja::json_value(heap, json);
    if (!parsed) return Error{parsed.error().code, "messages: " + parsed.error().what};
    if (!parsed.value().is(Kind::List))
        return Error{Errc::BadArgument, "messages must be a list of objects"};
    List messages;
    for (const Value& value : parsed.value().list().items) {
        const std::string where = fmt::format("messages[{}]", messages.items.size());
        if (!value.is(Kind::Dict)) return Error{Errc::BadArgument, where + " is no object"};
        Dict message = value.dict();
        drop_nulls(message);
        fill_reasoning(heap, message);
        if (Status s = parse_arguments(heap, message, cut); !s)
            return Error{s.error().code, where + "." + s.error().what};
        messages.items.push_back(jinja::with_known_role(heap, heap.add(std::move(message))));
    }
    return heap.add(std::move(messages));
}

}  // namespace paceline
