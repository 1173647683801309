#include "model/tokenizer/chatml_pattern.hpp"

#include <span>
#include <utility>

namespace paceline {
namespace {

enum class Hole : unsigned char {
    None,
    DefaultSystem,  // plain words inside a Jinja string in single quotes
    Tools,          // statements without an else of their own: the true branch of `if tools`
    ToolCalls       // statements, and branches for the role "tool" only
};

struct Part {
    std::string_view words;
    Hole then = Hole::None;
};

// Every message is <|im_start|>role\ncontent<|im_end|>\n, whatever its role.
constexpr Part kPlain[] = {
    {"{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
     "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
     "{{ '<|im_start|>assistant\n' }}{% endif %}"}};

// The same with a system prompt put in front where the conversation brings none: SmolLM2, Qwen2.
constexpr Part kWithDefault[] = {
    {"{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
     "{{ '<|im_start|>system\n",
     Hole::DefaultSystem},
    {"<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
     "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
     "{{ '<|im_start|>assistant\n' }}{% endif %}"}};

// Qwen2.5: without tools and tool calls it renders as kWithDefault does.
constexpr Part kWithTools[] = {
    {"{%- if tools %}", Hole::Tools},
    {"{%- else %}\n    {%- if messages[0]['role'] == 'system' %}\n"
     "        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}\n"
     "    {%- else %}\n        {{- '<|im_start|>system\n",
     Hole::DefaultSystem},
    {"<|im_end|>\n' }}\n    {%- endif %}\n{%- endif %}\n{%- for message in messages %}\n"
     "    {%- if (message.role == \"user\") or (message.role == \"system\" and not loop.first) or "
     "(message.role == \"assistant\" and not message.tool_calls) %}\n"
     "        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}\n"
     "    {%- elif message.role == \"assistant\" %}",
     Hole::ToolCalls},
    {"{%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\n"
     "    {{- '<|im_start|>assistant\n' }}\n{%- endif %}"}};

bool is_plain_words(std::string_view text) {
    return !text.empty() && text.find_first_of("'\\{}<\n") == std::string_view::npos;
}

/// The statement inside {% %}, without its dashes and the blanks around it.
std::string_view trimmed(std::string_view tag) {
    while (!tag.empty() && (tag.front() == '-' || tag.front() == ' ')) tag.remove_prefix(1);
    while (!tag.empty() && (tag.back() == '-' || tag.back() == ' ')) tag.remove_suffix(1);
    return tag;
}

/// Whether `text` is whole statements: every if and for is closed in it, nothing else is, and
/// outside of them there is no branch that `hole` does not allow.
bool is_closed_block(std::string_view text, Hole hole) {
    int depth = 0;
    for (std::size_t at = text.find("{%"); at != std::string_view::npos; at = text.find("{%", at)) {
        const std::size_t end = text.find("%}", at);
        if (end == std::string_view::npos) return false;
        const std::string_view tag = trimmed(text.substr(at + 2, end - at - 2));
        at = end;
        const bool opens = tag.starts_with("if ") || tag.starts_with("for ");
        const bool closes = tag == "endif" || tag == "endfor";
        const bool branches = tag == "else" || tag.starts_with("elif ");
        if (!opens && !closes && !branches && !tag.starts_with("set ")) return false;
        if (opens) ++depth;
        if (closes && --depth < 0) return false;
        const bool allowed = hole == Hole::ToolCalls && tag == "elif message.role == \"tool\"";
        if (branches && depth == 0 && !allowed) return false;
    }
    return depth == 0 && text.find("{#") == std::string_view::npos;
}

bool fits(std::string_view text, Hole hole) {
    return hole == Hole::DefaultSystem ? is_plain_words(text) : is_closed_block(text, hole);
}

/// The same template without the blanks next to the braces of an expression: `{{ x }}` and
/// `{{x}}` mean the same, and files have either.
std::string without_inner_blanks(std::string_view jinja) {
    std::string text;
    for (std::size_t i = 0; i < jinja.size(); ++i) {
        if (jinja[i] == ' ') {
            const bool opened = text.ends_with("{{") || text.ends_with("{{-");
            const std::size_t next = jinja.find_first_not_of(' ', i);
            const std::string_view rest = next == std::string_view::npos ? "" : jinja.substr(next);
            if (opened || rest.starts_with("}}") || rest.starts_with("-}}")) continue;
        }
        text.push_back(jinja[i]);
    }
    return text;
}

/// Matches the whole of `text`; each hole takes the shortest text that fits it.
std::optional<ChatMl> match(std::string_view text, std::span<const Part> parts) {
    ChatMl found;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::string words = without_inner_blanks(parts[i].words);
        if (!text.starts_with(words)) return std::nullopt;
        text.remove_prefix(words.size());
        if (parts[i].then == Hole::None) break;
        const std::string next = without_inner_blanks(parts[i + 1].words);
        std::size_t end = text.find(next);
        while (end != std::string_view::npos && !fits(text.substr(0, end), parts[i].then)) {
            end = text.find(next, end + 1);
        }
        if (end == std::string_view::npos) return std::nullopt;
        if (parts[i].then == Hole::DefaultSystem) found.default_system = text.substr(0, end);
        text.remove_prefix(end);
    }
    if (!text.empty() && text != "\n") return std::nullopt;  // Jinja drops one newline at the end
    return found;
}

/// Jinja reads the two characters \n in a string as a line break; files have either.
std::string with_line_breaks(std::string_view jinja) {
    std::string text;
    for (std::size_t i = 0; i < jinja.size(); ++i) {
        const bool escaped = jinja.substr(i, 2) == "\\n";
        text.push_back(escaped ? '\n' : jinja[i]);
        if (escaped) ++i;
    }
    return text;
}

}  // namespace

std::optional<ChatMl> match_chatml(std::string_view jinja) {
    const std::string text = without_inner_blanks(with_line_breaks(jinja));
    for (const std::span<const Part> parts :
         {std::span<const Part>{kPlain}, std::span<const Part>{kWithDefault},
          std::span<const Part>{kWithTools}}) {
        if (std::optional<ChatMl> found = match(text, parts)) return found;
    }
    return std::nullopt;
}

}  // namespace paceline
