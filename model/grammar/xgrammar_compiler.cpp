// The GrammarCompiler over xgrammar.
#include <exception>
#include <fmt/core.h>
#include <new>
#include <xgrammar/compiler.h>

#include "model/grammar/compiled_form.hpp"
#include "model/grammar/grammar.hpp"
#include "model/grammar/schema_check.hpp"
#include "model/grammar/xgrammar_vocabulary.hpp"

namespace paceline {
namespace {

std::string reason_of(const std::exception& error) {
    std::string text = error.what();
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    constexpr std::size_t kReasonMax = 1000;
    if (text.size() > kReasonMax) text = text.substr(0, kReasonMax) + " ...";
    return text;
}

const char* name_of(GrammarKind kind) {
    switch (kind) {
        case GrammarKind::None:
            break;
        case GrammarKind::Json:
        case GrammarKind::JsonSchema:
            return "JSON schema";
        case GrammarKind::Ebnf:
            return "grammar";
        case GrammarKind::Regex:
            return "regular expression";
        case GrammarKind::StructuralTag:
            return "structural tag";
    }
    return "grammar";
}

/// White space is that of one layout, `{"a": 1, "b": [1, 2]}`: none that could go on for ever.
xgrammar::CompiledGrammar compiled_schema(xgrammar::GrammarCompiler& compiler,
                                          const std::string& schema,
                                          bool strict) {
    return compiler.CompileJSONSchema(schema, false, std::nullopt, std::nullopt, strict);
}

xgrammar::CompiledGrammar compiled(xgrammar::GrammarCompiler& compiler, const GrammarSpec& spec) {
    switch (spec.kind) {
        case GrammarKind::None:
            break;
        case GrammarKind::Json:
            return compiled_schema(compiler, R"({"type": "object"})", false);
        case GrammarKind::JsonSchema:
            return compiled_schema(compiler, spec.text, true);
        case GrammarKind::Ebnf:
            return compiler.CompileGrammar(spec.text);
        case GrammarKind::Regex:
            return compiler.CompileRegex(spec.text);
        case GrammarKind::StructuralTag:
            return compiler.CompileStructuralTag(spec.text);
    }
    throw std::runtime_error{"a grammar of no kind"};
}

/// What the library would take for a wider language.
Status check(const GrammarSpec& spec) {
    if (spec.kind == GrammarKind::JsonSchema) return check_schema(spec.text);
    if (spec.kind == GrammarKind::StructuralTag) return check_schemas_of_tag(spec.text);
    return {};
}

class XgrammarCompiler final : public GrammarCompiler {
public:
    explicit XgrammarCompiler(GrammarVocabulary vocabulary) : vocabulary_{std::move(vocabulary)} {}

    Result<CompiledGrammarPtr> compile(const GrammarSpec& spec) override {
        if (spec.text.size() > kGrammarTextMax) {
            return Error{Errc::BadArgument,
                         fmt::format("the {} has {} bytes, at most {} are allowed",
                                     name_of(spec.kind), spec.text.size(), kGrammarTextMax)};
        }
        if (Status checked = check(spec); !checked)
            return Error{Errc::BadArgument, fmt::format("the {} cannot be compiled: {}",
                                                        name_of(spec.kind), checked.error().what)};
        try {
            const std::vector<TokenId> named = vocabulary_.named_by(spec);
            xgrammar::GrammarCompiler compiler{vocabulary_.info(named), 1, false};
            auto made = std::make_shared<CompiledGrammar>();
            made->hash = hash_of(spec);
            Result<std::string> form =
                write_form({named, compiled(compiler, spec).SerializeJSON()});
            if (!form)
                return Error{Errc::BadArgument,
                             fmt::format("the {} is too large when it is compiled: {}",
                                         name_of(spec.kind), form.error().what)};
            made->bytes = std::move(form.value());
            if (made->bytes.size() > kCompiledGrammarMax) {
                return Error{
                    Errc::BadArgument,
                    fmt::format("the {} takes {} bytes when it is compiled, at most {} are allowed",
                                name_of(spec.kind), made->bytes.size(), kCompiledGrammarMax)};
            }
            return CompiledGrammarPtr{std::move(made)};
        } catch (const std::bad_alloc&) {
            return Error{Errc::OutOfMemory,
                         fmt::format("the {} needs more memory than there is to compile it",
                                     name_of(spec.kind))};
        } catch (const std::exception& error) {
            return Error{Errc::BadArgument, fmt::format("the {} cannot be compiled: {}",
                                                        name_of(spec.kind), reason_of(error))};
        }
    }

private:
    XgrammarVocabulary vocabulary_;
};

}  // namespace

bool has_grammars() {
    return true;
}

std::unique_ptr<GrammarCompiler> make_grammar_compiler(GrammarVocabulary vocabulary) {
    return std::make_unique<XgrammarCompiler>(std::move(vocabulary));
}

}  // namespace paceline
