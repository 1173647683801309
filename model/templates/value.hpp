// Values of templates: numbers, texts, lists, dictionaries, and what can be called.
//
// A Value is small and copied freely; what it refers to is owned by a Heap, which frees all of it
// at once (values may refer to each other in circles) and counts its bytes. Everything but a
// namespace is immutable once it is made, as in the sandbox of the transformers library.
// One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "model/templates/text.hpp"

namespace paceline::jinja {

struct List;
struct Dict;
struct Namespace;
struct Macro;
struct Loop;
struct Callable;

enum class Kind : std::uint8_t {
    Undefined,
    None,
    Bool,
    Int,
    Float,
    Text,
    List,  // also tuples, ranges, iterators and views: List::form
    Dict,
    Namespace,
    Macro,
    Loop,
    Callable  // a built-in function, or a method with its object
};

class Value {
public:
    Value() = default;
    static Value none() { return Value{Kind::None}; }
    static Value boolean(bool value) { return of(Kind::Bool, static_cast<std::int64_t>(value)); }
    static Value integer(std::int64_t value) { return of(Kind::Int, value); }
    static Value number(double value) {
        Value made{Kind::Float};
        made.float_ = value;
        return made;
    }
    /// `name` is what error messages call it; it outlives the value.
    static Value undefined(const std::string* name) { return at(Kind::Undefined, name); }
    static Value of(const jinja::Text* text) { return at(Kind::Text, text); }
    static Value of(List* list) { return at(Kind::List, list); }
    static Value of(const Dict* dict) { return at(Kind::Dict, dict); }
    static Value of(Namespace* space) { return at(Kind::Namespace, space); }
    static Value of(const Macro* macro) { return at(Kind::Macro, macro); }
    static Value of(Loop* loop) { return at(Kind::Loop, loop); }
    static Value of(const Callable* callable) { return at(Kind::Callable, callable); }

    [[nodiscard]] Kind kind() const { return kind_; }
    [[nodiscard]] bool is(Kind kind) const { return kind_ == kind; }
    [[nodiscard]] bool is_whole() const { return is(Kind::Int) || is(Kind::Bool); }
    [[nodiscard]] bool is_number() const { return is_whole() || is(Kind::Float); }

    [[nodiscard]] std::int64_t whole() const { return whole_; }  // Int, Bool
    [[nodiscard]] double real() const {                          // Int, Bool, Float
        return is(Kind::Float) ? float_ : static_cast<double>(whole_);
    }
    [[nodiscard]] const jinja::Text& text() const { return *as<const jinja::Text>(); }
    [[nodiscard]] List& list() const { return *const_cast<List*>(as<const List>()); }
    [[nodiscard]] const Dict& dict() const { return *as<const Dict>(); }
    [[nodiscard]] Namespace& space() const {
        return *const_cast<Namespace*>(as<const Namespace>());
    }
    [[nodiscard]] const Macro& macro() const { return *as<const Macro>(); }
    [[nodiscard]] Loop& loop() const { return *const_cast<Loop*>(as<const Loop>()); }
    [[nodiscard]] const Callable& callable() const { return *as<const Callable>(); }
    /// Of Undefined; may be nullptr.
    [[nodiscard]] const std::string* name() const { return as<const std::string>(); }
    [[nodiscard]] const void* address() const { return pointer_; }

private:
    explicit Value(Kind kind) : kind_{kind} {}
    static Value of(Kind kind, std::int64_t whole) {
        Value made{kind};
        made.whole_ = whole;
        return made;
    }
    static Value at(Kind kind, const void* pointer) {
        Value made{kind};
        made.pointer_ = pointer;
        return made;
    }
    template <class T>
    [[nodiscard]] T* as() const {
        return static_cast<T*>(pointer_);
    }

    Kind kind_ = Kind::Undefined;
    union {
        const void* pointer_ = nullptr;
        std::int64_t whole_;
        double float_;
    };
};

enum class ListForm : std::uint8_t {
    List,
    Tuple,
    Range,     // what range() gives: numbers, listed, and their List::bounds
    Iterator,  // what map() and select() give: true, without length, read once
    Keys,      // what keys(), values() and items() give: views with length, without index
    Values,
    Items
};

struct List {
    struct Bounds {
        std::int64_t start = 0, stop = 0, step = 1;
    };

    std::vector<Value> items;
    ListForm form = ListForm::List;
    bool consumed = false;  // an Iterator that was read
    Bounds bounds = {};     // of a Range
};

/// In the order of insertion. Few keys: looked up one by one.
struct Dict {
    std::vector<std::pair<Value, Value>> items;
};

struct Namespace {
    std::vector<std::pair<std::string, Value>> names;
};

/// One for all rounds of a loop: where a namespace keeps it, it goes on counting.
struct Loop {
    std::size_t index = 0;  // from 0
    const std::vector<Value>* items = nullptr;
};

/// `name` is one of known_names.hpp.
struct Callable {
    std::string name;
    Value object = {};  // of a method
    bool is_method = false;
};

class Heap {
public:
    Heap() = default;
    Heap(Heap&&) noexcept = default;
    Heap& operator=(Heap&&) noexcept = default;
    Heap(const Heap&) = delete;
    Heap& operator=(const Heap&) = delete;
    ~Heap() = default;

    Value add(Text text);
    Value add(List list);
    Value add(Dict dict);
    Value add(Namespace space);
    Value add(Loop loop);
    Value add(Callable callable);
    /// For what lies elsewhere and lives as long.
    void charge(std::size_t bytes) { bytes_ += bytes; }
    /// About what is in use.
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
    std::size_t bytes_ = 0;
    std::deque<Text> texts_;
    std::deque<List> lists_;
    std::deque<Dict> dicts_;
    std::deque<Namespace> spaces_;
    std::deque<Loop> loops_;
    std::deque<Callable> callables_;
};

/// "str", "dict", ... as Python's error messages call it.
[[nodiscard]] const char* type_name(const Value& value);

}  // namespace paceline::jinja
