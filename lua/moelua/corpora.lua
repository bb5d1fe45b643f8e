-- Owns texts that a machine may have installed, by name: each is a function
-- that returns an iterator of documents, or nil and what to install.
local corpora = {}

-- One document a chapter, a line a verse: "Ge1:1 In the beginning ...".
local function chapters(pipe)
  local name, verses = nil, {}
  return function()
    while pipe do
      local line = pipe:read("*l")
      if not line then
        pipe:close()
        pipe = nil
        break
      end
      local chapter, text = line:match("^(%S+):%d+ (.*)$")
      if chapter then
        local done = chapter ~= name and #verses > 0
          and table.concat(verses, "\n") .. "\n"
        if chapter ~= name then name, verses = chapter, {} end
        verses[#verses + 1] = text
        if done then return done end
      end
    end
    if #verses == 0 then return nil end
    local last = table.concat(verses, "\n") .. "\n"
    verses = {}
    return last
  end
end

-- The King James Version, from the Debian package bible-kjv.
function corpora.kjv()
  if os.execute("command -v bible >/dev/null 2>&1") ~= 0 then
    return nil, "kjv is the text of the program 'bible'; install the package "
      .. "bible-kjv"
  end
  return chapters(io.popen("bible -f gen1:1-rev22:21", "r"))
end

return corpora
