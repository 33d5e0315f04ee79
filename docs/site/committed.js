/* The page of committed results: shows the experiments in whose text every word typed occurs. */
document.querySelectorAll(".find-results").forEach((field) => {
  const results = [...document.querySelectorAll("details.result")];
  const said = document.querySelector(".found-results");
  const look = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const result of results) {
      const text = result.textContent.toLowerCase();
      result.hidden = !words.every((word) => text.includes(word));
      found += !result.hidden;
    }
    said.textContent = `${found} of ${results.length} experiments`;
  };
  field.addEventListener("input", look);
  look();
});
