#include "model/templates/value.hpp"

namespace paceline::jinja {
namespace {

constexpr std::size_t kOverhead = 64;

const char* type_name(ListForm form) {
    switch (form) {
        case ListForm::List:
            return "list";
        case ListForm::Tuple:
            return "tuple";
        case ListForm::Range:
            return "range";
        case ListForm::Iterator:
            return "generator";
        case ListForm::Keys:
            return "dict_keys";
        case ListForm::Values:
            return "dict_values";
        case ListForm::Items:
            return "dict_items";
    }
    return "";
}

}  // namespace

Value Heap::add(Text text) {
    bytes_ += 2 * text.size() + kOverhead;
    return Value::of(&texts_.emplace_back(std::move(text)));
}

Value Heap::add(List list) {
    bytes_ += list.items.size() * sizeof(Value) + kOverhead;
    return Value::of(&lists_.emplace_back(std::move(list)));
}

Value Heap::add(Dict dict) {
    bytes_ += dict.items.size() * 2 * sizeof(Value) + kOverhead;
    return Value::of(&dicts_.emplace_back(std::move(dict)));
}

Value Heap::add(Namespace space) {
    bytes_ += space.names.size() * kOverhead + kOverhead;
    return Value::of(&spaces_.emplace_back(std::move(space)));
}

Value Heap::add(Loop loop) {
    bytes_ += kOverhead;
    return Value::of(&loops_.emplace_back(loop));
}

Value Heap::add(Callable callable) {
    bytes_ += kOverhead;
    return Value::of(&callables_.emplace_back(std::move(callable)));
}

const char* type_name(const Value& value) {
    switch (value.kind()) {
        case Kind::Undefined:
            return "Undefined";
        case Kind::None:
            return "NoneType";
        case Kind::Bool:
            return "bool";
        case Kind::Int:
            return "int";
        case Kind::Float:
            return "float";
        case Kind::Text:
            return "str";
        case Kind::List:
            return type_name(value.list().form);
        case Kind::Dict:
            return "dict";
        case Kind::Namespace:
            return "Namespace";
        case Kind::Macro:
            return "Macro";
        case Kind::Loop:
            return "LoopContext";
        case Kind::Callable:
            return "function";
    }
    return "";
}

}  // namespace paceline::jinja
