// Methods of texts, lists and dictionaries.
#include <algorithm>
#include <fmt/core.h>

#include "model/templates/builtins.hpp"
#include "model/templates/operations.hpp"
#include "model/templates/text_methods.hpp"

namespace paceline::jinja {
namespace {

Value pairs(Run& run, const Dict& dict) {
    std::vector<Value> items;
    for (const auto& [key, value] : dict.items) {
        if (!run.step()) break;
        items.push_back(run.list({key, value}, ListForm::Tuple));
    }
    return run.list(std::move(items), ListForm::Items);
}

Value dict_method(Run& run, const Value& object, std::string_view name, const Arguments& given) {
    const Dict& dict = object.dict();
    if (name == "get") {
        const std::vector<Value> values = bound(run, name, given, {"key", "default"});
        if (given.positional.empty()) return run.fail("get() needs a key");
        if (run.failed()) return {};
        const Value* found = find(run, dict, values[0]);
        if (found != nullptr) return *found;
        return given.positional.size() + given.keywords.size() > 1 ? values[1] : Value::none();
    }
    bound(run, name, given, {});
    if (run.failed() || name == "copy") return object;
    if (name == "items") return pairs(run, dict);
    std::vector<Value> items;
    for (const auto& [key, value] : dict.items) items.push_back(name == "keys" ? key : value);
    return run.list(std::move(items), name == "keys" ? ListForm::Keys : ListForm::Values);
}

Value list_method(Run& run, const Value& object, std::string_view name, const Arguments& given) {
    if (name == "copy") return object;
    const std::vector<Value> values = bound(run, name, given, {"value"});
    std::int64_t count = 0, at = 0;
    for (const Value& item : object.list().items) {
        if (run.failed()) return {};
        if (equal(run, item, values[0])) {
            if (name == "index") return Value::integer(at);
            ++count;
        }
        ++at;
    }
    return name == "index" ? run.fail("index() of what is not in the list") : Value::integer(count);
}

}  // namespace

Value call_method(Run& run, const Value& object, std::string_view name, const Arguments& given) {
    switch (object.kind()) {
        case Kind::Dict:
            return dict_method(run, object, name, given);
        case Kind::List:
            return list_method(run, object, name, given);
        case Kind::Text:
            return text_method(run, object.text(), name, given);
        case Kind::Loop: {  // cycle
            if (given.positional.empty()) return run.fail("loop.cycle() needs values");
            return given.positional[object.loop().index % given.positional.size()];
        }
        default:
            return run.fail(fmt::format("{} has no method '{}'", type_name(object), name));
    }
}

}  // namespace paceline::jinja
