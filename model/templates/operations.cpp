#include "model/templates/operations.hpp"

#include <algorithm>
#include <fmt/core.h>

namespace paceline::jinja {
namespace {

bool is_set(const List& list) {
    return list.form == ListForm::Keys || list.form == ListForm::Items;
}

bool has_item(Run& run, const List& list, const Value& wanted) {
    return std::any_of(list.items.begin(), list.items.end(),
                       [&](const Value& item) { return equal(run, item, wanted); });
}

bool equal_dicts(Run& run, const Dict& a, const Dict& b) {
    if (a.items.size() != b.items.size()) return false;
    for (const auto& [key, value] : a.items) {
        const Value* other = find(run, b, key);
        if (other == nullptr || !equal(run, value, *other) || run.failed()) return false;
    }
    return true;
}

bool equal_lists(Run& run, const List& a, const List& b) {
    if (a.items.size() != b.items.size()) return false;
    // As Python: keys() and items() are sets, values() and iterators are equal to nothing but
    // themselves.
    if (is_set(a) && is_set(b)) {
        return std::all_of(a.items.begin(), a.items.end(), [&](const Value& item) {
            return !run.failed() && has_item(run, b, item);
        });
    }
    if (a.form != b.form || a.form == ListForm::Values || a.form == ListForm::Iterator)
        return false;
    for (std::size_t i = 0; i < a.items.size(); ++i) {
        if (!equal(run, a.items[i], b.items[i]) || run.failed()) return false;
    }
    return true;
}

/// The same function, or the same method of the same object.
bool equal_callables(const Callable& a, const Callable& b) {
    return a.name == b.name && a.is_method == b.is_method && a.object.kind() == b.object.kind() &&
           a.object.address() == b.object.address();
}

Order order_of(double a, double b) {
    if (a < b) return Order::Less;
    if (a > b) return Order::Greater;
    return a == b ? Order::Same : Order::None;
}

/// A character as a text of its own.
Value character(Run& run, const Text& text, const std::vector<std::size_t>& starts, std::size_t i) {
    return run.make(text.sub(starts[i], starts[i + 1] - starts[i]));
}

std::optional<std::size_t> index_of(std::int64_t index, std::size_t size) {
    const auto count = static_cast<std::int64_t>(size);
    if (index < 0) index += count;
    if (index < 0 || index >= count) return {};
    return static_cast<std::size_t>(index);
}

Value type_error(Run& run, std::string_view op, const Value& a, const Value& b) {
    for (const Value& value : {a, b}) {
        if (value.is(Kind::Undefined)) return run.fail(undefined_text(value));
    }
    return run.fail(
        fmt::format("'{}' does not work with {} and {}", op, type_name(a), type_name(b)));
}

/// A slice of a range is a range: its bounds.
List::Bounds sliced(
    Run& run, const List::Bounds& range, std::int64_t begin, std::int64_t end, std::int64_t step) {
    List::Bounds cut;
    const auto number_at = [&range](std::int64_t index, std::int64_t& out) {
        return !__builtin_mul_overflow(index, range.step, &out) &&
               !__builtin_add_overflow(out, range.start, &out);
    };
    const bool fits = number_at(begin, cut.start) && number_at(end, cut.stop) &&
                      !__builtin_mul_overflow(step, range.step, &cut.step);
    if (!fits) run.fail("a slice of a range needs numbers of more than 64 bits");
    return cut;
}

}  // namespace

bool has_indices(const Value& value) {
    if (!value.is(Kind::List)) return false;
    const ListForm form = value.list().form;
    return form == ListForm::List || form == ListForm::Tuple || form == ListForm::Range;
}

bool truth(const Value& value) {
    switch (value.kind()) {
        case Kind::Undefined:
        case Kind::None:
            return false;
        case Kind::Bool:
        case Kind::Int:
            return value.whole() != 0;
        case Kind::Float:
            return value.real() != 0.0;
        case Kind::Text:
            return !value.text().empty();
        case Kind::List:
            return value.list().form == ListForm::Iterator || !value.list().items.empty();
        case Kind::Dict:
            return !value.dict().items.empty();
        default:
            return true;
    }
}

std::string undefined_text(const Value& value) {
    return value.name() == nullptr ? "a value is undefined"
                                   : "'" + *value.name() + "' is undefined";
}

bool equal(Run& run, const Value& a, const Value& b) {
    const Run::Level level{run};
    if (!run.step()) return false;
    if (a.is_number() && b.is_number()) {
        if (a.is_whole() && b.is_whole()) return a.whole() == b.whole();
        return a.real() == b.real();
    }
    if (a.kind() != b.kind()) return false;
    switch (a.kind()) {
        case Kind::Undefined:
        case Kind::None:
            return true;
        case Kind::Text:
            return run.step(std::min(a.text().size(), b.text().size()) / 64) &&
                   a.text().bytes() == b.text().bytes();
        case Kind::List:
            return a.address() == b.address() || equal_lists(run, a.list(), b.list());
        case Kind::Dict:
            return a.address() == b.address() || equal_dicts(run, a.dict(), b.dict());
        case Kind::Callable:
            return equal_callables(a.callable(), b.callable());
        default:
            return a.address() == b.address();
    }
}

bool is_same(Run& run, const Value& a, const Value& b) {
    if (a.kind() != b.kind()) return false;
    const bool by_value = a.is_number() || a.is(Kind::Text) || a.is(Kind::None) ||
                          (a.is(Kind::Callable) && !a.callable().is_method);
    return by_value ? equal(run, a, b) : a.address() == b.address();
}

Order order(Run& run, const Value& a, const Value& b) {
    const Run::Level level{run};
    if (!run.step()) return Order::Same;
    if (a.is_whole() && b.is_whole()) {
        return a.whole() < b.whole()   ? Order::Less
               : a.whole() > b.whole() ? Order::Greater
                                       : Order::Same;
    }
    if (a.is_number() && b.is_number()) return order_of(a.real(), b.real());
    if (a.is(Kind::Text) && b.is(Kind::Text)) {
        const int sign = a.text().bytes().compare(b.text().bytes());
        return sign < 0 ? Order::Less : sign > 0 ? Order::Greater : Order::Same;
    }
    const bool ordered = a.is(Kind::List) && b.is(Kind::List) && a.list().form == b.list().form &&
                         (a.list().form == ListForm::List || a.list().form == ListForm::Tuple);
    if (ordered) {
        const std::vector<Value>&x = a.list().items, &y = b.list().items;
        for (std::size_t i = 0; i < std::min(x.size(), y.size()) && !run.failed(); ++i) {
            if (!equal(run, x[i], y[i])) return order(run, x[i], y[i]);
        }
        return x.size() < y.size()   ? Order::Less
               : x.size() > y.size() ? Order::Greater
                                     : Order::Same;
    }
    type_error(run, "<", a, b);
    return Order::Same;
}

bool contains(Run& run, const Value& container, const Value& item) {
    switch (container.kind()) {
        case Kind::Text:
            if (!item.is(Kind::Text)) {
                type_error(run, "in", item, container);
                return false;
            }
            return run.step(container.text().size() / 16) &&
                   container.text().bytes().find(item.text().bytes()) != std::string::npos;
        case Kind::Dict:
            return find(run, container.dict(), item) != nullptr;
        case Kind::List:
        case Kind::Undefined:
            for (const Value& one : iterate(run, container)) {
                if (equal(run, one, item)) return true;
                if (run.failed()) break;
            }
            return false;
        default:
            run.fail(fmt::format("'in' does not work with {}", type_name(container)));
            return false;
    }
}

bool compare(Run& run, std::string_view op, const Value& a, const Value& b) {
    if (op == "==") return equal(run, a, b);
    if (op == "!=") return !equal(run, a, b);
    if (op == "in") return contains(run, b, a);
    if (op == "not in") return !contains(run, b, a);
    const Order found = order(run, a, b);
    if (found == Order::None || run.failed()) return false;
    if (op == "<") return found == Order::Less;
    if (op == "<=") return found != Order::Greater;
    if (op == ">") return found == Order::Greater;
    return found != Order::Less;
}

std::vector<Value> iterate(Run& run, const Value& value) {
    std::vector<Value> items;
    switch (value.kind()) {
        case Kind::Undefined:
            break;
        case Kind::List: {
            List& list = value.list();
            const bool gone = list.form == ListForm::Iterator && list.consumed;
            list.consumed = true;
            if (!gone && run.step(list.items.size() / 8)) items = list.items;
            break;
        }
        case Kind::Dict:
            items.reserve(value.dict().items.size());
            for (const auto& item : value.dict().items) items.push_back(item.first);
            break;
        case Kind::Text: {
            const std::vector<std::size_t> starts = character_starts(value.text().bytes());
            for (std::size_t i = 0; i + 1 < starts.size() && run.step(); ++i)
                items.push_back(character(run, value.text(), starts, i));
            break;
        }
        default:
            run.fail(fmt::format("{} cannot be iterated over", type_name(value)));
    }
    return items;
}

std::optional<std::int64_t> length(Run& run, const Value& value) {
    switch (value.kind()) {
        case Kind::Undefined:
            return 0;
        case Kind::Text:
            return static_cast<std::int64_t>(count_characters(value.text().bytes()));
        case Kind::Dict:
            return static_cast<std::int64_t>(value.dict().items.size());
        case Kind::List:
            if (value.list().form != ListForm::Iterator)
                return static_cast<std::int64_t>(value.list().items.size());
            break;
        case Kind::Loop:
            return static_cast<std::int64_t>(value.loop().items->size());
        default:
            break;
    }
    run.fail(fmt::format("{} has no length", type_name(value)));
    return {};
}

bool is_hashable(Run& run, const Value& value) {
    const Run::Level level{run};
    if (!run.step() || value.is(Kind::Dict)) return false;
    if (!value.is(Kind::List)) return true;
    const List& list = value.list();
    if (list.form != ListForm::Tuple) return list.form != ListForm::List && !is_set(list);
    return std::all_of(list.items.begin(), list.items.end(),
                       [&](const Value& item) { return is_hashable(run, item); });
}

const Value* find(Run& run, const Dict& dict, const Value& key) {
    if (key.is(Kind::Text)) {
        run.step(1 + dict.items.size() / 8);
        return find(dict, key.text().bytes());
    }
    if (!is_hashable(run, key)) {
        run.fail(fmt::format("{} cannot be a key", type_name(key)));
        return nullptr;
    }
    for (const auto& [name, value] : dict.items) {
        if (equal(run, name, key)) return &value;
    }
    return nullptr;
}

const Value* find(const Dict& dict, std::string_view key) {
    for (const auto& [name, value] : dict.items) {
        if (name.is(Kind::Text) && name.text().bytes() == key) return &value;
    }
    return nullptr;
}

Value subscript(Run& run, const Value& object, const Value& key) {
    if (object.is(Kind::Undefined)) return run.fail(undefined_text(object));
    if (object.is(Kind::Dict)) {
        const Value* found = find(run, object.dict(), key);
        if (found != nullptr) return *found;
    } else if (key.is_whole() && has_indices(object)) {
        const auto index = index_of(key.whole(), object.list().items.size());
        return index ? object.list().items[*index] : Value{};
    } else if (key.is_whole() && object.is(Kind::Text)) {
        const std::vector<std::size_t> starts = character_starts(object.text().bytes());
        const auto index = index_of(key.whole(), starts.size() - 1);
        if (!run.step(starts.size() / 16) || !index) return {};
        return character(run, object.text(), starts, *index);
    }
    // As jinja2: what is no item may be an attribute, also of a dictionary.
    return key.is(Kind::Text) ? attribute(run, object, key.text().bytes()) : Value{};
}

Value slice(Run& run, const Value& object, const Value (&bounds)[3]) {
    const bool is_text = object.is(Kind::Text);
    if (object.is(Kind::Undefined)) return run.fail(undefined_text(object));
    if (!is_text && !has_indices(object))
        return run.fail(fmt::format("{} cannot be sliced", type_name(object)));
    for (const Value& bound : bounds) {
        if (!bound.is(Kind::None) && !bound.is_whole())
            return run.fail("a slice needs whole numbers");
    }
    const std::vector<std::size_t> starts =
        is_text ? character_starts(object.text().bytes()) : std::vector<std::size_t>{};
    const auto size =
        static_cast<std::int64_t>(is_text ? starts.size() - 1 : object.list().items.size());
    const std::int64_t step = bounds[2].is(Kind::None) ? 1 : bounds[2].whole();
    if (step == 0) return run.fail("the step of a slice cannot be zero");
    const std::int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? size : size - 1;
    const auto bound = [&](const Value& wanted, std::int64_t absent) {
        if (wanted.is(Kind::None)) return absent;
        std::int64_t at = wanted.whole();
        if (at < 0) at = at < -size ? -1 : at + size;
        return std::clamp(at, lowest, highest);
    };
    const std::int64_t begin = bound(bounds[0], step > 0 ? lowest : highest);
    const std::int64_t end = bound(bounds[1], step > 0 ? highest : lowest);
    if (!run.step(static_cast<std::uint64_t>(size) / 16)) return {};
    Text text;
    std::vector<Value> items;
    if (is_text && step == 1) {
        const auto from = static_cast<std::size_t>(begin), to = static_cast<std::size_t>(end);
        if (from < to) text = object.text().sub(starts[from], starts[to] - starts[from]);
        return run.make(std::move(text));
    }
    for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
        const auto at = static_cast<std::size_t>(i);
        if (is_text) {
            text.append(object.text().sub(starts[at], starts[at + 1] - starts[at]));
        } else {
            items.push_back(object.list().items[at]);
        }
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    if (is_text) return run.make(std::move(text));
    List cut{std::move(items), object.list().form};
    if (cut.form == ListForm::Range)
        cut.bounds = sliced(run, object.list().bounds, begin, end, step);
    return run.make(std::move(cut));
}

}  // namespace paceline::jinja
