// Interpreter: renders a syntax tree.
//
// Names are looked up from the innermost scope outwards: loops, macros, blocks that are set or
// filtered and {% generation %} have scopes of their own, if has none, as in jinja2. A macro sees
// the scope in which it is defined.
// One thread; one rendering.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "model/templates/parsing/syntax.hpp"
#include "model/templates/run.hpp"

namespace paceline::jinja {

struct Scope {
    Scope* parent = nullptr;
    std::vector<std::pair<std::string_view, Value>> names = {};
};

/// A macro, with the scope in which it is defined.
struct Macro {
    const Statement* statement = nullptr;
    Scope* scope = nullptr;
};

/// What a filter, a test, a function or a method is given.
struct Arguments {
    std::vector<Value> positional = {};
    std::vector<std::pair<std::string_view, Value>> keywords = {};
};

class Interpreter {
public:
    Interpreter(Run& run, const std::vector<std::pair<std::string, Value>>& variables);

    /// What is printed; of no use if the run failed.
    Text render(const Body& body);

    Value evaluate(const Expr& expr);
    Run& run() { return run_; }

private:
    enum class Flow : unsigned char { On, Break, Continue };

    Flow execute(const Body& body);
    Flow execute(const Statement& statement);
    Flow execute_if(const Statement& statement);
    Flow execute_for(const Statement& statement);
    std::vector<Value> filtered(const Statement& statement, std::vector<Value> items);
    void execute_set_block(const Statement& statement);
    void print(const Text& text);
    /// The text that `body` prints, in a scope of its own.
    Text captured(const Body& body, Flow& flow);
    Text through(const Expr* filter, const Text& text);
    Scope& new_scope(Scope* parent);

    void assign(const Target& target, const Value& value);
    void assign_attribute(const Target& target, const Value& value);
    void set(std::string_view name, const Value& value);
    Value look_up(const std::string& name);

    Value evaluate_any(const Expr& expr);
    Value evaluate_items(const Expr& expr);
    Value evaluate_dict(const Expr& expr);
    Value evaluate_slice(const Expr& expr);
    Value evaluate_concat(const Expr& expr);
    Value evaluate_compare(const Expr& expr);
    Value evaluate_test(const Expr& expr);
    Value evaluate_call(const Expr& expr);
    Value evaluate_filter(const Expr& expr);
    Arguments arguments(const Expr& expr);
    Value call_macro(const Macro& macro, const Arguments& given);
    void set_parameters(const Statement& statement, const Arguments& given);

    Run& run_;
    std::deque<Scope> scopes_;  // all of them: macros refer to theirs
    std::deque<Macro> macros_;
    Scope* scope_ = nullptr;
    Text* out_ = nullptr;
    std::size_t output_bytes_ = 0;
    const Text* filtered_ = nullptr;  // what a filter without an object is given
};

}  // namespace paceline::jinja
