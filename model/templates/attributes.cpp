// object.name: items of dictionaries, attributes of namespaces and loops, methods.
#include <algorithm>

#include "model/templates/builtins.hpp"
#include "model/templates/known_names.hpp"
#include "model/templates/operations.hpp"

namespace paceline::jinja {
namespace {

constexpr std::string_view kDictMethods[] = {"copy", "get", "items", "keys", "values"};
constexpr std::string_view kListMethods[] = {"copy", "count", "index"};

Value loop_attribute(Run& run, const Value& object, const std::string& name) {
    const Loop& loop = object.loop();
    const std::vector<Value>& items = *loop.items;
    const auto whole = [](std::size_t n) { return Value::integer(static_cast<std::int64_t>(n)); };
    if (name == "index") return whole(loop.index + 1);
    if (name == "index0") return whole(loop.index);
    if (name == "revindex") return whole(items.size() - loop.index);
    if (name == "revindex0") return whole(items.size() - loop.index - 1);
    if (name == "first") return Value::boolean(loop.index == 0);
    if (name == "last") return Value::boolean(loop.index + 1 == items.size());
    if (name == "length") return whole(items.size());
    if (name == "depth") return Value::integer(loop.depth);
    if (name == "depth0") return Value::integer(loop.depth - 1);
    if (name == "previtem") return loop.index > 0 ? items[loop.index - 1] : Value::undefined(&name);
    if (name == "nextitem")
        return loop.index + 1 < items.size() ? items[loop.index + 1] : Value::undefined(&name);
    if (name == "cycle") return run.make(Callable{name, object, true});
    if (name == "changed") return run.fail("'loop.changed' is not supported");
    return Value::undefined(&name);
}

}  // namespace

bool has_method(const Value& object, std::string_view name) {
    const auto is_in = [name](const auto& names) {
        return std::find(std::begin(names), std::end(names), name) != std::end(names);
    };
    switch (object.kind()) {
        case Kind::Dict:
            return is_in(kDictMethods);
        case Kind::List:
            return (object.list().form == ListForm::List ||
                    object.list().form == ListForm::Tuple) &&
                   is_in(kListMethods);
        case Kind::Text:
            return is_known_method(name) && !is_changing_method(name) && name != "copy" &&
                   name != "get" && name != "items" && name != "keys" && name != "values" &&
                   name != "cycle";
        default:
            return false;
    }
}

Value attribute(Run& run, const Value& object, const std::string& name) {
    switch (object.kind()) {
        case Kind::Undefined:
            return run.fail(undefined_text(object));
        case Kind::Loop:
            return loop_attribute(run, object, name);
        case Kind::Namespace:
            for (const auto& [known, value] : object.space().names) {
                if (known == name) return value;
            }
            return Value::undefined(&name);
        default:
            break;
    }
    if (has_method(object, name)) return run.make(Callable{name, object, true});
    if (object.is(Kind::Dict) && !is_changing_method(name)) {
        if (const Value* found = find(object.dict(), name); found != nullptr) return *found;
    }
    return Value::undefined(&name);
}

}  // namespace paceline::jinja
