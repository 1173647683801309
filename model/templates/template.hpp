// Template: a chat template in Jinja, as the transformers library renders them.
//
// Our own engine for the subset of Jinja that chat templates use. A template is part of a model
// file and untrusted: it has no access to the machine, and steps, depth, memory and output are
// limited. Unsupported features are refused by name when the template is parsed.
// Immutable once parsed; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/templates/run.hpp"

namespace paceline::jinja {

struct Syntax;

/// What a template is given; owns its values.
class Variables {
public:
    void set(std::string name, Value value) { values_.emplace_back(std::move(name), value); }
    /// Texts are made valid UTF-8.
    void set_text(std::string name, std::string_view text, Origin origin);
    Value text(std::string_view text, Origin origin);
    [[nodiscard]] Heap& heap() { return heap_; }
    [[nodiscard]] const std::vector<std::pair<std::string, Value>>& values() const {
        return values_;
    }

private:
    Heap heap_;
    std::vector<std::pair<std::string, Value>> values_;
};

class Template {
public:
    /// Errors: Unsupported with the line and the name of what there is not.
    static Result<Template> parse(std::string_view source);

    /// What the template prints for `variables`. `now` is for strftime_now().
    /// Errors: Unsupported with the line: a limit, what Python would raise, raise_exception().
    [[nodiscard]] Result<Text> render(const Variables& variables,
                                      const LocalTime& now,
                                      const Limits& limits = {}) const;

private:
    explicit Template(std::shared_ptr<const Syntax> syntax) : syntax_{std::move(syntax)} {}

    std::shared_ptr<const Syntax> syntax_;
};

}  // namespace paceline::jinja
