// object.name: methods, items of dictionaries, attributes of namespaces, loops, macros and ranges.
#include <fmt/core.h>

#include "model/templates/interpreter.hpp"
#include "model/templates/operations.hpp"
#include "model/templates/python_attributes.hpp"

namespace paceline::jinja {
namespace {

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
    // jinja2 counts the calls of a recursive loop, not the loops around.
    if (name == "depth" || name == "depth0") return Value::integer(name == "depth" ? 1 : 0);
    if (name == "previtem") return loop.index > 0 ? items[loop.index - 1] : Value::undefined(&name);
    if (name == "nextitem")
        return loop.index + 1 < items.size() ? items[loop.index + 1] : Value::undefined(&name);
    if (name == "cycle") return run.make(Callable{name, object, true});
    if (name == "changed") return run.fail("'loop.changed' is not supported");
    return Value::undefined(&name);
}

Value macro_attribute(Run& run, const Value& object, const std::string& name) {
    const Statement& macro = *object.macro().statement;
    const auto has_parameter = [&macro](std::string_view wanted) {
        for (const auto& [parameter, value] : macro.parameters) {
            if (parameter == wanted) return true;
        }
        return false;
    };
    if (name == "name") return run.text(macro.name);
    if (name == "arguments") {
        std::vector<Value> names;
        for (const auto& [parameter, value] : macro.parameters)
            names.push_back(run.text(parameter));
        return run.list(std::move(names), ListForm::Tuple);
    }
    if (name == "catch_varargs") return Value::boolean(macro.uses.varargs);
    if (name == "catch_kwargs") return Value::boolean(macro.uses.kwargs);
    if (name == "caller") return Value::boolean(macro.uses.caller);
    if (name == "explicit_caller") return Value::boolean(has_parameter("caller"));
    return Value::undefined(&name);
}

Value namespace_attribute(const Value& object, const std::string& name) {
    for (const auto& [known, value] : object.space().names) {
        if (known == name) return value;
    }
    return Value::undefined(&name);
}

/// Nothing: a range has no number of that name.
std::optional<std::int64_t> range_attribute(const Value& object, std::string_view name) {
    if (!object.is(Kind::List) || object.list().form != ListForm::Range) return {};
    const List::Bounds& bounds = object.list().bounds;
    if (name == "start") return bounds.start;
    if (name == "stop") return bounds.stop;
    if (name == "step") return bounds.step;
    return {};
}

}  // namespace

Value attribute(Run& run, const Value& object, const std::string& name) {
    switch (object.kind()) {
        case Kind::Undefined:
            return run.fail(undefined_text(object));
        case Kind::Loop:
            return loop_attribute(run, object, name);
        case Kind::Namespace:
            return namespace_attribute(object, name);
        case Kind::Macro:
            return macro_attribute(run, object, name);
        default:
            break;
    }
    if (const auto number = range_attribute(object, name)) return Value::integer(*number);
    switch (python_attribute(object, name)) {
        case Attribute::Method:
            return run.make(Callable{name, object, true});
        case Attribute::Forbidden:
            return Value::undefined(&name);
        case Attribute::Unsupported:
            return run.fail(
                fmt::format("the attribute '{}' of {} is not supported", name, type_name(object)));
        case Attribute::None:
            break;
    }
    const Value* item = object.is(Kind::Dict) ? find(object.dict(), name) : nullptr;
    return item == nullptr ? Value::undefined(&name) : *item;
}

bool check_namespace_name(Run& run, std::string_view name) {
    if (name.starts_with('_'))
        run.fail(fmt::format("the attribute '{}' of a namespace begins with '_'", name));
    return !run.failed();
}

}  // namespace paceline::jinja
