#include "model/templates/template.hpp"

#include "ipc/base/utf8.hpp"
#include "model/templates/interpreter.hpp"
#include "model/templates/parsing/parser.hpp"

namespace paceline::jinja {

Value Variables::text(std::string_view text, Origin origin) {
    return heap_.add(Text{utf8::replace_invalid(text), origin});
}

void Variables::set_text(std::string name, std::string_view words, Origin origin) {
    set(std::move(name), text(words, origin));
}

Result<Template> Template::parse(std::string_view source) {
    Result<Syntax> syntax = jinja::parse(source);
    if (!syntax) return syntax.error();
    return Template{std::make_shared<const Syntax>(std::move(syntax).value())};
}

Result<Text> Template::render(const Variables& variables,
                              const LocalTime& now,
                              const Limits& limits) const {
    Run run{limits, now};
    Interpreter interpreter{run, variables.values()};
    Text text = interpreter.render(syntax_->body);
    if (run.failed()) return run.failure();
    return text;
}

}  // namespace paceline::jinja
