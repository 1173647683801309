# cmake -DSOURCE=DIR -P PatchXgrammar.cmake: corrects xgrammar 0.2.8 where it lets invalid JSON through (found by
# tests/clients/grammar_corpus) or does not end; each correction must fit exactly once, so another version cannot pass unseen.
function(correct file from to)
    file(READ ${SOURCE}/cpp/${file} text)
    string(FIND "${text}" "${from}" first)
    string(FIND "${text}" "${to}" done)
    if(done GREATER_EQUAL 0 AND first EQUAL -1)
        return()  # the step runs a second time
    endif()
    string(FIND "${text}" "${from}" last REVERSE)
    if(first EQUAL -1 OR NOT first EQUAL last)
        message(FATAL_ERROR "xgrammar's ${file} is another one than this correction is for: ${from}")
    endif()
    string(REPLACE "${from}" "${to}" text "${text}")
    file(WRITE ${SOURCE}/cpp/${file} "${text}")
endfunction()

# What a grammar forces may have no end ("a" root); of a long text no draft needs more than its beginning.
correct(grammar_matcher.cc
    [[while (can_find_next_char) {]]
    [[while (can_find_next_char && num_accepted_chars < 256) {]])
# A string with minLength or maxLength may hold no control character.
correct(json_schema_converter.cc
    [[builder_.AddCharacterClass({{'"', '"'}, {'\\', '\\'}, {'\r', '\r'}, {'\n', '\n'}}, true);]]
    [[builder_.AddCharacterClass({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}, true);]])
# Nor may a JSON pointer, nor a quotation mark or a backslash that is not escaped.
correct(json_schema_converter.cc
    [["^(/([\\x00-\\x2E]|[\\x30-\\x7D]|[\\x7F-\\U0010FFFF]|~[01])*)*$"]]
    [["^(/([\\x20-\\x21]|[\\x23-\\x2E]|[\\x30-\\x5B]|[\\x5D-\\x7D]|[\\x7F-\\U0010FFFF]|~[01])*)*$"]])
correct(json_schema_converter.cc
    [["^(0|[1-9][0-9]*)(#|(/([\\x00-\\x2E]|[\\x30-\\x7D]|[\\x7F-\\U0010FFFF]|~[01])*)*)$"]]
    [["^(0|[1-9][0-9]*)(#|(/([\\x20-\\x21]|[\\x23-\\x2E]|[\\x30-\\x5B]|[\\x5D-\\x7D]|[\\x7F-\\U0010FFFF]|~[01])*)*)$"]])
