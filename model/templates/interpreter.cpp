#include "model/templates/interpreter.hpp"

#include <fmt/core.h>

#include "model/templates/known_names.hpp"
#include "model/templates/operations.hpp"
#include "model/templates/printing.hpp"

namespace paceline::jinja {

Interpreter::Interpreter(Run& run, const std::vector<std::pair<std::string, Value>>& variables)
    : run_{run} {
    scope_ = &new_scope(nullptr);
    for (const auto& [name, value] : variables) set(name, value);
    scope_ = &new_scope(scope_);
}

Text Interpreter::render(const Body& body) {
    Text out;
    out_ = &out;
    execute(body);
    return out;
}

Scope& Interpreter::new_scope(Scope* parent) {
    run_.heap().charge(sizeof(Scope));
    return scopes_.emplace_back(Scope{.parent = parent});
}

void Interpreter::print(const Text& text) {
    output_bytes_ += text.size();
    if (output_bytes_ > run_.limits().output_bytes) {
        run_.fail(fmt::format("it prints more than {} MiB", run_.limits().output_bytes >> 20U));
        return;
    }
    run_.append(*out_, text);
}

Interpreter::Flow Interpreter::execute(const Body& body) {
    const Run::Level level{run_};
    for (const Statement* statement : body) {
        if (run_.failed()) return Flow::On;
        const Flow flow = execute(*statement);
        if (flow != Flow::On) return flow;
    }
    return Flow::On;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
    run_.at_line(statement.line);
    run_.step();
    Flow flow = Flow::On;
    switch (statement.type) {
        case StatementType::Data:
            print(statement.text);
            break;
        case StatementType::Print:
            print(as_text(run_, evaluate(*statement.value)));
            break;
        case StatementType::If:
            return execute_if(statement);
        case StatementType::For:
            return execute_for(statement);
        case StatementType::Set:
            assign(statement.target, evaluate(*statement.value));
            break;
        case StatementType::SetBlock:
            execute_set_block(statement);
            break;
        case StatementType::Macro:
            set(statement.name,
                Value::of(&macros_.emplace_back(Macro{.statement = &statement, .scope = scope_})));
            break;
        case StatementType::FilterBlock:
            print(through(statement.value, captured(statement.body, flow)));
            break;
        case StatementType::Scope: {
            Scope* outer = scope_;
            scope_ = &new_scope(outer);
            flow = execute(statement.body);
            scope_ = outer;
            break;
        }
        case StatementType::Break:
            return Flow::Break;
        case StatementType::Continue:
            return Flow::Continue;
    }
    return flow;
}

Interpreter::Flow Interpreter::execute_if(const Statement& statement) {
    for (const auto& [condition, body] : statement.branches) {
        if (condition == nullptr || truth(evaluate(*condition))) return execute(body);
        if (run_.failed()) break;
    }
    return Flow::On;
}

/// The items that the condition of a loop lets through.
std::vector<Value> Interpreter::filtered(const Statement& statement, std::vector<Value> items) {
    if (statement.condition == nullptr) return items;
    std::vector<Value> left;
    Scope* outer = scope_;
    for (const Value& item : items) {
        if (!run_.step()) break;
        scope_ = &new_scope(outer);
        assign(statement.target, item);
        if (truth(evaluate(*statement.condition))) left.push_back(item);
    }
    scope_ = outer;
    return left;
}

Interpreter::Flow Interpreter::execute_for(const Statement& statement) {
    const std::vector<Value> items = filtered(statement, iterate(run_, evaluate(*statement.value)));
    if (items.empty()) return execute(statement.otherwise);
    Scope* outer = scope_;
    ++loop_depth_;
    Flow flow = Flow::On;
    // The list is kept by the heap: a namespace may keep the loop.
    const Value all = run_.list(items);
    for (std::size_t i = 0; i < items.size() && flow != Flow::Break && run_.step(); ++i) {
        scope_ = &new_scope(outer);
        run_.room(0);
        set("loop", run_.make(Loop{.index = i, .items = &all.list().items, .depth = loop_depth_}));
        assign(statement.target, items[i]);
        flow = execute(statement.body);
        scope_ = outer;
    }
    --loop_depth_;
    return Flow::On;
}

Text Interpreter::captured(const Body& body, Flow& flow) {
    Scope* outer = scope_;
    Text* out = out_;
    Text text;
    scope_ = &new_scope(outer);
    out_ = &text;
    flow = execute(body);
    out_ = out;
    scope_ = outer;
    return text;
}

Text Interpreter::through(const Expr* filter, const Text& text) {
    if (filter == nullptr) return text;
    const Text* before = std::exchange(filtered_, &text);
    Text result = as_text(run_, evaluate(*filter));
    filtered_ = before;
    return result;
}

void Interpreter::execute_set_block(const Statement& statement) {
    Flow flow = Flow::On;
    const Text text = captured(statement.body, flow);
    assign(statement.target, run_.make(through(statement.value, text)));
}

void Interpreter::set(std::string_view name, const Value& value) {
    for (auto& [known, old] : scope_->names) {
        if (known == name) {
            old = value;
            return;
        }
    }
    run_.heap().charge(sizeof(scope_->names.front()));
    if (run_.room(0)) scope_->names.emplace_back(name, value);
}

void Interpreter::assign_attribute(const Target& target, const Value& value) {
    const Value space = look_up(target.names[0]);
    if (!space.is(Kind::Namespace)) {
        run_.fail(
            fmt::format("'{}' is not a namespace: its attributes cannot be set", target.names[0]));
        return;
    }
    for (auto& [known, old] : space.space().names) {
        if (known == target.attribute) {
            old = value;
            return;
        }
    }
    if (run_.room(target.attribute.size() + sizeof(Value)))
        space.space().names.emplace_back(target.attribute, value);
}

void Interpreter::assign(const Target& target, const Value& value) {
    if (!target.attribute.empty()) return assign_attribute(target, value);
    if (!target.unpacks) return set(target.names[0], value);
    const std::vector<Value> items = iterate(run_, value);
    if (items.size() != target.names.size()) {
        run_.fail(fmt::format("{} values for {} names", items.size(), target.names.size()));
        return;
    }
    for (std::size_t i = 0; i < items.size(); ++i) set(target.names[i], items[i]);
}

Value Interpreter::look_up(const std::string& name) {
    for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
        for (const auto& [known, value] : scope->names) {
            if (known == name) return value;
        }
    }
    if (is_known_function(name)) return run_.make(Callable{.name = name});
    return Value::undefined(&name);
}

Value Interpreter::call_macro(const Macro& macro, const Arguments& given) {
    const Run::Level level{run_};
    const Statement& statement = *macro.statement;
    if (run_.failed()) return {};
    if (given.positional.size() > statement.parameters.size())
        return run_.fail(fmt::format("the macro '{}' takes {} arguments, not {}", statement.name,
                                     statement.parameters.size(), given.positional.size()));
    Scope* outer = scope_;
    Text* out = out_;
    Text text;
    scope_ = &new_scope(macro.scope);
    out_ = &text;
    std::size_t used = 0;
    for (std::size_t i = 0; i < statement.parameters.size(); ++i) {
        const auto& [name, otherwise] = statement.parameters[i];
        if (i < given.positional.size()) {
            set(name, given.positional[i]);
            continue;
        }
        const Value* found = nullptr;
        for (const auto& [keyword, value] : given.keywords) {
            if (keyword == name) found = &value;
        }
        if (found != nullptr) ++used;
        if (found != nullptr) {
            set(name, *found);
        } else {
            set(name, otherwise == nullptr ? Value::undefined(&name) : evaluate(*otherwise));
        }
    }
    if (used != given.keywords.size())
        run_.fail(fmt::format("the macro '{}' has no such keyword, or was given it twice",
                              statement.name));
    execute(statement.body);
    out_ = out;
    scope_ = outer;
    return run_.make(std::move(text));
}

}  // namespace paceline::jinja
