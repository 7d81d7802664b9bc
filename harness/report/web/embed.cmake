# Writes the files of the page into a C++ source, with their SHA-256 for the content security policy.
#   cmake -DOUTPUT=page_files.cc "-DFILES=a.js b.css" -DFOLDER=... -P embed.cmake
separate_arguments(FILES)
set(source "// Made by embed.cmake.\n#include \"harness/report/web/page_files.h\"\n\nnamespace plugfest::report {\n\n")
set(entries "")
foreach(name IN LISTS FILES)
  file(READ "${FOLDER}/${name}" content)
  file(SHA256 "${FOLDER}/${name}" hash)
  string(FIND "${content}" ")plugfest_file\"" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "${name}: contains the delimiter of the string")
  endif()
  string(APPEND entries "    {\"${name}\", R\"plugfest_file(${content})plugfest_file\",\n     \"${hash}\"},\n")
endforeach()
string(APPEND source "const std::vector<PageFile>& page_files() {\n"
       "  static const std::vector<PageFile> files = {\n${entries}  };\n"
       "  return files;\n}\n\n}  // namespace plugfest::report\n")
file(WRITE "${OUTPUT}" "${source}")
