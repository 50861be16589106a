# mr_openapi(<document> <header>): writes a C header with the OpenAPI document, openapi_json, and a page that lists its
# endpoints, docs_html. Both are arrays of char with a NUL behind them. Runs when CMake configures.
function(mr_openapi document header)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${document})
    file(READ ${document} text)
    string(JSON title GET "${text}" info title)
    string(JSON description GET "${text}" info description)
    mr_openapi_rows("${text}" rows)
    set(page "<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">
<title>${title}: endpoints</title>
<style>body{font:16px/1.5 sans-serif;margin:2em auto;max-width:72em;padding:0 1em}td{padding:.2em 1em .2em 0;vertical-align:top}</style>
<h1>${title}</h1>
<p>${description}</p>
<p>Requests and answers are described in the <a href=\"docs/openapi.json\">OpenAPI document</a>.</p>
<table>
${rows}</table>
</html>
")
    string(HEX "${text}" json)
    string(HEX "${page}" html)
    string(REGEX REPLACE "(..)" "0x\\1," json "${json}")
    string(REGEX REPLACE "(..)" "0x\\1," html "${html}")
    file(CONFIGURE OUTPUT ${header} CONTENT
        "static const char openapi_json[] = {@json@0};\nstatic const char docs_html[] = {@html@0};\n" @ONLY)
endfunction()

# mr_page(<file> <name> <header>): writes a C header with the file as an array of char of that name, with a NUL behind it.
function(mr_page file name header)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} hex HEX)
    string(REGEX REPLACE "(..)" "0x\\1," hex "${hex}")
    file(CONFIGURE OUTPUT ${header} CONTENT "static const char @name@[] = {@hex@0};\n" @ONLY)
endfunction()

# A row of the page's table for each method of each path.
function(mr_openapi_rows text out)
    set(rows)
    string(JSON paths LENGTH "${text}" paths)
    math(EXPR last_path "${paths} - 1")
    foreach(i RANGE ${last_path})
        string(JSON path MEMBER "${text}" paths ${i})
        foreach(method IN ITEMS get post)
            string(JSON summary ERROR_VARIABLE missing GET "${text}" paths "${path}" ${method} summary)
            if(NOT missing)
                string(TOUPPER ${method} name)
                string(APPEND rows "<tr><td>${name}<td><code>${path}</code><td>${summary}\n")
            endif()
        endforeach()
    endforeach()
    set(${out} "${rows}" PARENT_SCOPE)
endfunction()
