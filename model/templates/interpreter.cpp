#include "model/templates/interpreter.hpp"

#include <algorithm>
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
    Flow flow = Flow::On;
    // The list is kept by the heap: a namespace may keep the loop.
    const Value all = run_.list(items);
    const Value counter = run_.make(Loop{.items = &all.list().items});
    for (std::size_t i = 0; i < items.size() && flow != Flow::Break && run_.step(); ++i) {
        scope_ = &new_scope(outer);
        counter.loop().index = i;
        set("loop", counter);
        assign(statement.target, items[i]);
        flow = execute(statement.body);
        scope_ = outer;
    }
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
    if (!check_namespace_name(run_, target.attribute)) return;
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
    if (is_unsupported_name(name)) return run_.fail("'" + name + "' is not supported");
    return Value::undefined(&name);
}

/// The arguments of a macro by their names. Those that it has no name for are `varargs` and
/// `kwargs`, if it uses them.
void Interpreter::set_parameters(const Statement& statement, const Arguments& given) {
    const std::size_t named = statement.parameters.size();
    std::vector<std::pair<std::string_view, Value>> rest = given.keywords;
    for (std::size_t i = 0; i < named; ++i) {
        const auto& [name, otherwise] = statement.parameters[i];
        if (i < given.positional.size()) {
            set(name, given.positional[i]);
            continue;
        }
        const auto keyword = std::find_if(rest.begin(), rest.end(),
                                          [&](const auto& one) { return one.first == name; });
        if (keyword != rest.end()) {
            set(name, keyword->second);
            rest.erase(keyword);
        } else {
            set(name, otherwise == nullptr ? Value::undefined(&name) : evaluate(*otherwise));
        }
    }
    const std::size_t used = std::min(named, given.positional.size());
    if (statement.uses.varargs) {
        set("varargs", run_.list({given.positional.begin() + static_cast<std::ptrdiff_t>(used),
                                  given.positional.end()},
                                 ListForm::Tuple));
    } else if (given.positional.size() > named) {
        run_.fail(fmt::format("the macro '{}' takes {} arguments, not {}", statement.name, named,
                              given.positional.size()));
    }
    if (statement.uses.kwargs) {
        Dict dict;
        for (const auto& [name, value] : rest) dict.items.emplace_back(run_.text(name), value);
        set("kwargs", run_.make(std::move(dict)));
    } else if (!rest.empty()) {
        run_.fail(fmt::format("the macro '{}' has no such keyword, or was given it twice",
                              statement.name));
    }
}

Value Interpreter::call_macro(const Macro& macro, const Arguments& given) {
    const Run::Level level{run_};
    if (run_.failed()) return {};
    Scope* outer = scope_;
    Text* out = out_;
    Text text;
    scope_ = &new_scope(macro.scope);
    out_ = &text;
    set_parameters(*macro.statement, given);
    execute(macro.statement->body);
    out_ = out;
    scope_ = outer;
    return run_.make(std::move(text));
}

}  // namespace paceline::jinja
