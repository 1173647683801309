#include "launch/cli/tokenize.hpp"

#include <cctype>
#include <charconv>
#include <cstdio>
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "launch/base/exit_codes.hpp"
#include "launch/base/json_text.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/report.hpp"
#include "launch/load/model_use.hpp"
#include "model/tokenizer/tokenizer.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

namespace {

constexpr const char* kTokenizeCommand = "tokenize";

/// The piece as a JSON text: bytes that are no UTF-8 become U+FFFD, as everywhere.
std::string printable(std::string_view bytes) {
    return json_text(nlohmann::json(bytes));
}

void print_table(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
    for (const TokenId id : ids) {
        const char* mark = tokenizer.is_control(id) ? "  control" : "";
        std::printf("%8d  %s%s\n", id, printable(tokenizer.bytes_of(id)).c_str(), mark);
    }
    std::fprintf(stderr, "%zu tokens\n", ids.size());
}

void print_json(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
    nlohmann::json pieces = nlohmann::json::array();
    for (const TokenId id : ids) pieces.push_back(std::string{tokenizer.bytes_of(id)});
    const nlohmann::json out{{"count", ids.size()}, {"tokens", ids}, {"token_strs", pieces}};
    std::puts(json_text(out).c_str());
}

/// Token ids in any common writing: "[1, 2]", "1 2", "1,2".
Result<std::vector<TokenId>> parse_ids(const std::string& text, int vocab_size) {
    std::vector<TokenId> ids;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at != end) {
        if (std::isspace(static_cast<unsigned char>(*at)) != 0 || *at == ',' || *at == '[' ||
            *at == ']') {
            ++at;
            continue;
        }
        TokenId id = 0;
        const auto [rest, failure] = std::from_chars(at, end, id);
        if (failure != std::errc{} || id < 0 || id >= vocab_size) {
            return Error{Errc::BadArgument,
                         fmt::format("--decode: no token id from 0 to {} at '{}'", vocab_size - 1,
                                     std::string{at, std::min(end, at + 20)})};
        }
        ids.push_back(id);
        at = rest;
    }
    return ids;
}

int decode(const Tokenizer& tokenizer, const std::string& text) {
    Result<std::vector<TokenId>> ids = parse_ids(text, tokenizer.vocab_size());
    if (!ids) return report_usage(kTokenizeCommand, ids.error().what);
    Detokenizer detokenizer{tokenizer};
    std::string out;
    for (const TokenId id : ids.value()) out += detokenizer.push(id);
    out += detokenizer.finish();
    std::fwrite(out.data(), 1, out.size(), stdout);
    return kExitOk;
}

}  // namespace

Command add_tokenize(Command& app, TokenizeOptions& options) {
    Command command = app.add_command(kTokenizeCommand, "Text to token ids and back");
    add_model_file_option(command, options.model);
    refuse_random_option(command);
    command.add_option("text", options.source.text, "the text (or -f FILE, or standard input)");
    command.add_option("-f,--file", options.source.file,
                       "read the text from FILE, - is standard input");
    command.add_option("-o,--output", options.format,
                       "table: a line per token; ids: a JSON array; json: ids and their texts",
                       one_of({"table", "ids", "json"}));
    command.add_flag("--plain", options.plain_text,
                     "text such as <|im_start|> is only its characters, not the control token");
    command.add_flag("--decode", options.decode,
                     "the text is token ids, such as [1, 2]; print what they say");
    command.footer(
        "Example:\n  paceline tokenize \"Hello, world\"\n"
        "  paceline run -p Hi --ids ids.json; paceline tokenize --decode -f ids.json");
    return command;
}

int run_tokenize(const TokenizeOptions& options, const Environment& environment) {
    Result<std::string> text = read_text(options.source, environment);
    if (!text) {
        return text.error().code == Errc::BadArgument
                   ? report_usage(kTokenizeCommand, text.error().what)
                   : report_failure(kTokenizeCommand, text.error());
    }
    Result<std::string> path = choose_model(options.model, environment);
    if (!path) return report_failure(kTokenizeCommand, path.error());
    Result<ModelFile> file = ModelFile::open(path.value());
    if (!file) return report_failure(kTokenizeCommand, file.error());
    Result<Tokenizer> tokenizer = tokenizer_of(file.value());
    if (!tokenizer) return report_failure(kTokenizeCommand, tokenizer.error());

    if (options.decode) return decode(tokenizer.value(), text.value());
    const SpecialTokens special = options.plain_text ? SpecialTokens::AsText : SpecialTokens::Parse;
    const std::vector<TokenId> ids = tokenizer.value().encode(text.value(), special);
    if (options.format == "table") {
        print_table(tokenizer.value(), ids);
    } else if (options.format == "json") {
        print_json(tokenizer.value(), ids);
    } else {
        std::puts(nlohmann::json(ids).dump().c_str());
    }
    return kExitOk;
}

}  // namespace paceline
