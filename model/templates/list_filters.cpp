#include "model/templates/list_filters.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/core.h>

#include "model/templates/builtins.hpp"
#include "model/templates/known_names.hpp"
#include "model/templates/operations.hpp"
#include "model/templates/printing.hpp"
#include "model/templates/text_methods.hpp"

namespace paceline::jinja {
namespace {

/// "a.b.0" of an item, as jinja2 reads attributes that are named by a text.
Value deep_attribute(Run& run, Value item, const Value& path) {
    if (path.is_whole()) return subscript(run, item, path);
    if (!path.is(Kind::Text)) return run.fail("an attribute is named by a text");
    const std::string& words = path.text().bytes();
    for (std::size_t begin = 0; begin <= words.size() && run.step();) {
        const std::size_t end = std::min(words.find('.', begin), words.size());
        const std::string_view part = std::string_view{words}.substr(begin, end - begin);
        std::int64_t index = 0;
        const auto read = std::from_chars(part.data(), part.data() + part.size(), index);
        const bool whole = !part.empty() && read.ptr == part.data() + part.size() && index >= 0;
        item = subscript(run, item, whole ? Value::integer(index) : run.text(part));
        begin = end + 1;
    }
    return item;
}

Value of_item(Run& run, const Value& item, const Value& attribute) {
    const bool none = attribute.is(Kind::Undefined) || attribute.is(Kind::None);
    return none ? item : deep_attribute(run, item, attribute);
}

/// What is compared: without regard to case unless that is wanted.
Value sort_key(Run& run, const Value& item, const Value& attribute, bool with_case) {
    const Value key = of_item(run, item, attribute);
    if (with_case || !key.is(Kind::Text)) return key;
    return run.make(in_case(key.text(), Case::Lower));
}

struct Keyed {
    Value key, item;
};

void sort_by_key(Run& run, std::vector<Keyed>& items, bool reverse) {
    const auto less = [&](const Keyed& a, const Keyed& b) {
        return !run.failed() && order(run, a.key, b.key) == Order::Less;
    };
    // As Python: equal items keep their order, reversed or not.
    if (reverse) std::reverse(items.begin(), items.end());
    std::stable_sort(items.begin(), items.end(), less);
    if (reverse) std::reverse(items.begin(), items.end());
}

Value sort(Run& run, const Value& object, const Arguments& given) {
    const std::vector<Value> values =
        bound(run, "sort", given, {"reverse", "case_sensitive", "attribute"});
    std::vector<Keyed> items;
    for (const Value& item : iterate(run, object))
        items.push_back({sort_key(run, item, values[2], truth(values[1])), item});
    sort_by_key(run, items, truth(values[0]));
    std::vector<Value> sorted;
    for (const Keyed& item : items) sorted.push_back(item.item);
    return run.list(std::move(sorted));
}

Value dictsort(Run& run, const Value& object, const Arguments& given) {
    const std::vector<Value> values =
        bound(run, "dictsort", given, {"case_sensitive", "by", "reverse"});
    if (!object.is(Kind::Dict)) return run.fail(fmt::format("dictsort() of {}", type_name(object)));
    const bool by_value = values[1].is(Kind::Text) && values[1].text().bytes() == "value";
    std::vector<Keyed> items;
    for (const auto& [key, value] : object.dict().items) {
        if (!run.step()) break;
        items.push_back({sort_key(run, by_value ? value : key, {}, truth(values[0])),
                         run.list({key, value}, ListForm::Tuple)});
    }
    sort_by_key(run, items, truth(values[2]));
    std::vector<Value> sorted;
    for (const Keyed& item : items) sorted.push_back(item.item);
    return run.list(std::move(sorted));
}

Value unique(Run& run, const Value& object, const Arguments& given) {
    const std::vector<Value> values = bound(run, "unique", given, {"case_sensitive", "attribute"});
    std::vector<Value> seen, items;
    for (const Value& item : iterate(run, object)) {
        const Value key = sort_key(run, item, values[1], truth(values[0]));
        if (!is_hashable(run, key)) return run.fail(fmt::format("unique() of {}", type_name(key)));
        const bool known = std::any_of(seen.begin(), seen.end(),
                                       [&](const Value& one) { return equal(run, one, key); });
        if (run.failed()) break;
        if (known) continue;
        seen.push_back(key);
        items.push_back(item);
    }
    return run.list(std::move(items), ListForm::Iterator);
}

Value extreme(Run& run, const Value& object, const Arguments& given, Order wanted) {
    const std::vector<Value> values = bound(run, "min", given, {"case_sensitive", "attribute"});
    const std::vector<Value> items = iterate(run, object);
    if (items.empty()) return {};
    Keyed best{sort_key(run, items[0], values[1], truth(values[0])), items[0]};
    for (std::size_t i = 1; i < items.size() && run.step(); ++i) {
        const Value key = sort_key(run, items[i], values[1], truth(values[0]));
        if (order(run, key, best.key) == wanted) best = {key, items[i]};
    }
    return best.item;
}

Value sum(Run& run, const Value& object, const Arguments& given) {
    const std::vector<Value> values = bound(run, "sum", given, {"attribute", "start"});
    Value total = values[1].is(Kind::Undefined) ? Value::integer(0) : values[1];
    for (const Value& item : iterate(run, object)) {
        if (!run.step()) break;
        total = arithmetic(run, "+", total, of_item(run, item, values[0]));
    }
    return total;
}

Value join(Run& run, const Value& object, const Arguments& given) {
    const std::vector<Value> values = bound(run, "join", given, {"d", "attribute"});
    std::vector<Value> items = iterate(run, object);
    for (Value& item : items) item = of_item(run, item, values[1]);
    return joined(run, as_text(run, values[0]), items);
}

Value items_filter(Run& run, const Value& object, const Arguments& given) {
    bound(run, "items", given, {});
    if (object.is(Kind::Undefined)) return run.list({}, ListForm::Iterator);
    if (!object.is(Kind::Dict)) return run.fail(fmt::format("items of {}", type_name(object)));
    const Value view = call_method(run, object, "items", {});
    return run.failed() ? Value{} : run.list(view.list().items, ListForm::Iterator);
}

Value end_of(Run& run, const Value& object, bool first) {
    if (!first && object.is(Kind::List) && object.list().form == ListForm::Iterator)
        return run.fail("last() of an iterator; put '| list' before it");
    const std::vector<Value> items = iterate(run, object);
    if (items.empty()) return {};
    return first ? items.front() : items.back();
}

Value reversed(Run& run, const Value& object) {
    std::vector<Value> items = iterate(run, object);
    std::reverse(items.begin(), items.end());
    if (object.is(Kind::Text)) return joined(run, Text{}, items);
    // As jinja2: what cannot be read backwards is made a list first.
    const bool once = object.is(Kind::List) && object.list().form == ListForm::Iterator;
    return run.list(std::move(items), once ? ListForm::List : ListForm::Iterator);
}

Value map(Run& run, const Value& object, const Arguments& given) {
    // As jinja2: None and the like have no items here, though a loop over them fails.
    std::vector<Value> items = truth(object) ? iterate(run, object) : std::vector<Value>{};
    Arguments rest = given;
    if (given.positional.empty()) {
        const std::vector<Value> values = bound(run, "map", given, {"attribute", "default"});
        for (Value& item : items) {
            if (run.failed()) break;
            item = of_item(run, item, values[0]);
            if (item.is(Kind::Undefined) && !values[1].is(Kind::Undefined)) item = values[1];
        }
        return run.list(std::move(items), ListForm::Iterator);
    }
    const Value name = given.positional[0];
    if (!name.is(Kind::Text) || !is_known_filter(name.text().bytes()))
        return run.fail("map() of a filter that is not supported");
    rest.positional.erase(rest.positional.begin());
    for (Value& item : items) {
        if (!run.step()) break;
        item = apply_filter(run, name.text().bytes(), item, rest);
    }
    return run.list(std::move(items), ListForm::Iterator);
}

/// select, reject, selectattr, rejectattr.
Value select(
    Run& run, const Value& object, const Arguments& given, bool wanted, bool by_attribute) {
    Arguments rest = given;
    Value path;
    std::string test;
    if (by_attribute) {
        if (rest.positional.empty()) return run.fail("selectattr() needs an attribute");
        path = rest.positional[0];
        rest.positional.erase(rest.positional.begin());
    }
    if (!rest.positional.empty()) {
        if (!rest.positional[0].is(Kind::Text) || !is_known_test(rest.positional[0].text().bytes()))
            return run.fail("select() by a test that is not supported");
        test = rest.positional[0].text().bytes();
        rest.positional.erase(rest.positional.begin());
    }
    std::vector<Value> items;
    if (!truth(object)) return run.list({}, ListForm::Iterator);
    for (const Value& item : iterate(run, object)) {
        if (!run.step()) break;
        const Value value = by_attribute ? deep_attribute(run, item, path) : item;
        const bool holds = test.empty() ? truth(value) : apply_test(run, test, value, rest);
        if (holds == wanted) items.push_back(item);
    }
    return run.list(std::move(items), ListForm::Iterator);
}

}  // namespace

Value list_filter(Run& run, std::string_view name, const Value& object, const Arguments& given) {
    if (name == "map") return map(run, object, given);
    if (name == "select" || name == "reject")
        return select(run, object, given, name == "select", false);
    if (name == "selectattr" || name == "rejectattr")
        return select(run, object, given, name == "selectattr", true);
    if (name == "join") return join(run, object, given);
    if (name == "sort") return sort(run, object, given);
    if (name == "dictsort") return dictsort(run, object, given);
    if (name == "unique") return unique(run, object, given);
    if (name == "min") return extreme(run, object, given, Order::Less);
    if (name == "max") return extreme(run, object, given, Order::Greater);
    if (name == "sum") return sum(run, object, given);
    if (name == "items") return items_filter(run, object, given);
    bound(run, name, given, {});
    if (run.failed()) return {};
    if (name == "first" || name == "last") return end_of(run, object, name == "first");
    if (name == "reverse") return reversed(run, object);
    return run.list(iterate(run, object));  // list
}

}  // namespace paceline::jinja
