// The syntax tree of a template.
//
// Nodes are owned by a Syntax and refer to each other by pointers; immutable once parsed, then
// any thread. The parser bounds the depth, so that a tree can be walked by recursion.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/templates/value.hpp"

namespace paceline::jinja {

enum class ExprType : unsigned char {
    Literal,      // value
    Name,         // name
    List,         // items
    Tuple,        // items
    Dict,         // items: key, value, key, value, ...
    Attribute,    // items[0] . name
    Subscript,    // items[0] [ items[1] ]
    Slice,        // items[0] [ items[1] : items[2] : items[3] ], nullptr where absent
    Call,         // items[0] ( items[1] ..., keywords )
    Filter,       // items[0] | name ( items[1] ..., keywords ); nullptr: of a block
    Test,         // items[0] is name ( items[1] ... )
    Negative,     // - items[0]
    Positive,     // + items[0]
    Not,          // not items[0]
    And,          // items[0] and items[1]
    Or,           // items[0] or items[1]
    Conditional,  // items[0] if items[1] else items[2]; nullptr: undefined
    Concat,       // items[0] ~ items[1] ~ ...
    Arithmetic,   // items[0] name items[1]
    Compare       // items[0] operators[0] items[1] operators[1] items[2] ...
};

struct Expr {
    ExprType type = ExprType::Literal;
    int line = 0;
    int depth = 1;  // of the tree below
    std::string name = {};
    Value value = {};
    std::vector<const Expr*> items = {};
    std::vector<std::pair<std::string, const Expr*>> keywords = {};
    std::vector<std::string_view> operators = {};
};

enum class StatementType : unsigned char {
    Data,         // text
    Print,        // value
    If,           // branches
    For,          // target in value, if condition: body, else otherwise
    Set,          // target = value
    SetBlock,     // target = body, through value (a Filter, or nullptr)
    Macro,        // name(parameters): body
    FilterBlock,  // body through value
    Scope,        // body: {% generation %}
    Break,
    Continue
};

struct Statement;
using Body = std::vector<const Statement*>;

/// What is assigned to: names, or an attribute of a namespace.
struct Target {
    std::vector<std::string> names = {};
    std::string attribute = {};  // names[0].attribute
    bool unpacks = false;        // a tuple, also of one name
};

/// The names that a macro has without declaring them, where its body uses them.
struct ImplicitNames {
    bool varargs = false;  // the positional arguments for which there is no parameter
    bool kwargs = false;   // the keywords for which there is none
    bool caller = false;   // of {% call %}, which is not supported: undefined
};

struct Statement {
    StatementType type = StatementType::Data;
    int line = 0;
    std::string name = {};
    Text text = {};
    const Expr* value = nullptr;
    const Expr* condition = nullptr;
    Target target = {};
    Body body = {};
    Body otherwise = {};
    std::vector<std::pair<const Expr*, Body>> branches = {};           // nullptr: else
    std::vector<std::pair<std::string, const Expr*>> parameters = {};  // nullptr: no default
    ImplicitNames uses = {};                                           // of a macro
};

struct Syntax {
    std::deque<Expr> exprs = {};
    std::deque<Statement> statements = {};
    Heap literals = {};
    Body body = {};
};

}  // namespace paceline::jinja
