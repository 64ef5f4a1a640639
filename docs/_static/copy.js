// A button in each block of code that copies it: of a session at the prompt its input only, without the prompts.
function codeOf(pre) {
  const text = pre.textContent.replace(/\n$/, "");
  if (!/^>>> /m.test(text)) return text;
  return text.split("\n").filter((line) => /^(>>>|\.\.\.)( |$)/.test(line)).map((line) => line.slice(4)).join("\n");
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // pages opened as files may not use the clipboard in this way
    const area = document.body.appendChild(document.createElement("textarea"));
    area.value = text;
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div[class*='highlight-']:not(.highlight-text, .highlight-none)")) {
    const pre = block.querySelector("pre");
    if (!pre || block.querySelector(".copy-code")) continue;
    const button = document.createElement("button");
    button.className = "copy-code";
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await copy(codeOf(pre));
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.append(button);
  }
});
